# fish completion for cairnctl and cairnd: what they offer comes from their own --help.
function __cairnctl_commands
    cairnctl --help 2>/dev/null | string replace -rf '^  ([a-z][a-z-]*) +(.*)$' '$1\t$2'
end
function __cairn_has_command
    for word in (commandline -opc)[2..-1]
        string match -qr '^[a-z]' -- $word; and return 0
    end
    return 1
end
complete -c cairnctl -f
complete -c cairnctl -n 'not __cairn_has_command' -a '(__cairnctl_commands)'
complete -c cairnctl -l socket -r -F -d 'the socket of cairnd'
complete -c cairnctl -l timeout -x -d 'how long to wait, in ms'
function __cairnctl_runs
    for word in (commandline -opc)[2..-1]
        contains -- $word $argv; and return 0
    end
    return 1
end
complete -c cairnctl -n '__cairnctl_runs blocks' -l space -x -d 'the number of a space'
complete -c cairnctl -n '__cairnctl_runs blocks contexts leases' -l tenant -x -d 'a uid'
complete -c cairnctl -n '__cairnctl_runs blocks' -l tier -x -a 'ram nvme' -d 'with a copy there'
complete -c cairnctl -n '__cairnctl_runs blocks' -l key -x -d 'the first digits of a key'
complete -c cairnctl -n '__cairnctl_runs blocks' -l held -d 'that somebody holds'
complete -c cairnctl -n '__cairnctl_runs blocks contexts leases' -l max -x -d 'so many at most'
complete -c cairnctl -n '__cairnctl_runs blocks contexts leases' -l after -x -d 'go on where another call stopped'
complete -c cairnctl -n '__cairnctl_runs hold' -a 'list set lift'
complete -c cairnctl -n '__cairnctl_runs hold pin unpin purge' -l space -x -d 'the number of a space'
complete -c cairnctl -n '__cairnctl_runs hold' -l tenant -x -d 'a name, or a uid'
complete -c cairnctl -n '__cairnctl_runs hold' -l key -x -d 'a block, and all before it'
complete -c cairnctl -n '__cairnctl_runs hold' -l note -x -d 'why'
complete -c cairnctl -n '__cairnctl_runs quota' -l ram -x -d 'bytes at most, or none'
complete -c cairnctl -n '__cairnctl_runs quota' -l nvme -x -d 'bytes at most, or none'
complete -c cairnctl -n '__cairnctl_runs quota' -l ram-guaranteed -x -d 'bytes that nobody else takes'
complete -c cairnctl -n '__cairnctl_runs quota' -l nvme-guaranteed -x -d 'bytes that nobody else takes'
complete -c cairnctl -n '__cairnctl_runs quota' -l reset -d 'back to the configuration'
complete -c cairnctl -n '__cairnctl_runs pin unpin' -l owner -x -d 'whose pin it is'
complete -c cairnctl -n '__cairnctl_runs pin' -l for -x -d 'for so long, like 1h'
complete -c cairnctl -n '__cairnctl_runs audit' -l since -x -d 'not before: 90s, 15m, 1h, 7d'
complete -c cairnctl -n '__cairnctl_runs audit' -l until -x -d 'before that'
complete -c cairnctl -n '__cairnctl_runs audit' -l action -x -a 'evict demote drop delete purge refuse quota hold retain begin lost' -d 'what was done'
complete -c cairnctl -n '__cairnctl_runs audit' -l reason -x -a 'capacity quota ttl request corrupt retention admission legal-hold permission pinned started device stopped' -d 'why'
complete -c cairnctl -n '__cairnctl_runs audit' -l newest -d 'the newest first'
complete -c cairnctl -n '__cairnctl_runs audit' -l verify -d 'check the chain of records'
complete -c cairnctl -n '__cairnctl_runs audit' -l noted -x -d 'the end that an earlier check printed'
complete -c cairnctl -n '__cairnctl_runs audit why' -l space -x -d 'the number of a space'
complete -c cairnctl -n '__cairnctl_runs audit' -l tenant -x -d 'a name or a uid'
complete -c cairnctl -n '__cairnctl_runs audit' -l key -x -d 'a key'
complete -c cairnctl -n '__cairnctl_runs audit why' -l max -x -d 'so many at most'
complete -c cairnctl -n '__cairnctl_runs audit' -l after -x -d 'go on where another call stopped'
complete -c cairnctl -l json -d 'one JSON object'
complete -c cairnctl -l help -d 'about cairnctl, or a command'
complete -c cairnctl -l version -d 'the version'

function __cairnd_keys
    cairnd --help 2>/dev/null | string replace -rf '^  (--[a-z_-]+).*$' '$1'
end
complete -c cairnd -f -a '(__cairnd_keys)'
complete -c cairnd -l config -r -F -d 'the configuration file'
