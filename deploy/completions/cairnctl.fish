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
complete -c cairnctl -l json -d 'one JSON object'
complete -c cairnctl -l help -d 'about cairnctl, or a command'
complete -c cairnctl -l version -d 'the version'

function __cairnd_keys
    cairnd --help 2>/dev/null | string replace -rf '^  (--[a-z_-]+).*$' '$1'
end
complete -c cairnd -f -a '(__cairnd_keys)'
complete -c cairnd -l config -r -F -d 'the configuration file'
