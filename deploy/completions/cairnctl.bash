# bash completion for cairnctl and cairnd: what they offer comes from their own --help.
_cairnctl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word
  COMPREPLY=()
  case "$prev" in
  --socket | -s)
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    return
    ;;
  --action)
    mapfile -t COMPREPLY < <(compgen -W "evict demote drop delete purge refuse quota hold retain begin lost" -- "$cur")
    return
    ;;
  --reason)
    mapfile -t COMPREPLY < <(compgen -W "capacity quota ttl request corrupt retention admission legal-hold permission pinned started device stopped" -- "$cur")
    return
    ;;
  --tier)
    mapfile -t COMPREPLY < <(compgen -W "ram nvme" -- "$cur")
    return
    ;;
  --timeout | --space | --tenant | --key | --max | --after | --since | --until | --noted | --ram | --nvme | --ram-guaranteed | --nvme-guaranteed | --note | --owner | --for) return ;;
  esac
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" --help 2>/dev/null | grep -oE '^ +--[a-z-]+' | tr -d ' ')" -- "$cur")
    return
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
    -*) ;;
    stats)
      mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" --json stats 2>/dev/null | grep -oE 'cairn_[a-z_]+' | sort -u)" -- "$cur")
      return
      ;;
    hold)
      [ "$prev" = hold ] && mapfile -t COMPREPLY < <(compgen -W "list set lift" -- "$cur")
      return
      ;;
    [a-z]*) return ;;
    esac
  done
  mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -nE 's/^  ([a-z][a-z-]*) .*/\1/p')" -- "$cur")
}
complete -F _cairnctl cairnctl

_cairnd() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case "$prev" in
  --config | --socket | --metrics?address)
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    return
    ;;
  --data?dir)
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    return
    ;;
  --log?level)
    mapfile -t COMPREPLY < <(compgen -W "error warning info debug" -- "$cur")
    return
    ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "--config $("${COMP_WORDS[0]}" --help 2>/dev/null | grep -oE '^ +--[a-z_-]+' | tr -d ' ')" -- "$cur")
}
complete -F _cairnd cairnd
