{{/* One agent a node, so one release a cluster: its names are those of deploy/kubernetes. */}}
{{- define "sexton.name" -}}sexton-node-agent{{- end }}

{{- define "sexton.selector" -}}
app.kubernetes.io/name: sexton
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "sexton.labels" -}}
{{ include "sexton.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "sexton.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The documents of a manifest of deploy/kubernetes, in this release's namespace. */}}
{{- define "sexton.manifest" -}}
{{- $account := printf "system:serviceaccount:%s:" .root.Release.Namespace -}}
{{- $text := .root.Files.Get .file | required (printf "%s is missing in the chart" .file) -}}
{{- range splitList "\n---\n" ($text | replace "system:serviceaccount:sexton:" $account) }}
{{- $one := fromYaml . }}
{{- if $one.Error }}{{ fail (printf "%s: %s" $.file $one.Error) }}{{ end }}
{{- if ne $one.kind "Namespace" }}
{{- $_ := set $one.metadata "labels" (include "sexton.labels" $.root | fromYaml) }}
{{- if eq ($one.metadata.namespace | default "") "sexton" }}
{{- $_ := set $one.metadata "namespace" $.root.Release.Namespace }}
{{- end }}
{{- range $one.subjects }}
{{- $_ := set . "namespace" $.root.Release.Namespace }}
{{- end }}
---
{{ toYaml $one }}
{{- end }}
{{- end }}
{{- end }}
