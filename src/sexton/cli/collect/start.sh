sampled=0
followed_pids=
gone=0
notes=

main "$@" </dev/null

}
