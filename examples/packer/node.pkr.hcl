# A Kubernetes node image that is built only if it passes the gate.
#
#   packer init . && packer build .
#
# The gate runs on the build instance after everything else. The instance is booted, so crash loops
# and memory cgroups are visible. A failed gate ends the build (exit 1) before an image is made; both
# reports are downloaded either way.

packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.3"
    }
  }
}

source "amazon-ebs" "node" {
  region        = "us-east-1"
  instance_type = "m6i.large"
  ssh_username  = "ubuntu"
  ami_name      = "k8s-node-{{timestamp}}"

  source_ami_filter {
    owners      = ["099720109477"]
    most_recent = true
    filters = {
      name                = "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-*"
      virtualization-type = "hvm"
    }
  }
}

build {
  sources = ["source.amazon-ebs.node"]

  # ... your own provisioners come first: packages, kubelet, agents ...

  provisioner "file" {
    source      = "../gate.toml"
    destination = "/tmp/gate.toml"
  }

  provisioner "shell" {
    inline = [
      "sudo apt-get update -qq",
      "sudo apt-get install -y -qq python3-venv",
      "sudo python3 -m venv /opt/sexton",
      "sudo /opt/sexton/bin/pip install --quiet 'sexton[gate]'", # until the first release: the wheel you built
    ]
  }

  # Keep the exit status, so that the reports are downloaded even if the gate fails.
  provisioner "shell" {
    inline = [
      "sudo /opt/sexton/bin/sexton gate --policy /tmp/gate.toml --seconds 60 --out /tmp/gate.sarif --out /tmp/gate.xml; echo $? | sudo tee /tmp/gate.exit",
      "sudo chmod a+r /tmp/gate.sarif /tmp/gate.xml",
    ]
  }

  provisioner "file" {
    direction   = "download"
    sources     = ["/tmp/gate.sarif", "/tmp/gate.xml"]
    destination = "./"
  }

  # Leave neither Sexton nor its reports in the image.
  provisioner "shell" {
    inline = [
      "status=$(cat /tmp/gate.exit)",
      "sudo rm -rf /opt/sexton /tmp/gate.toml /tmp/gate.sarif /tmp/gate.xml /tmp/gate.exit",
      "exit $status",
    ]
  }
}
