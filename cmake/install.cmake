# What a system gets beside programs and library: units, man pages, completions, the example configuration.
set(CAIRN_UNITDIR lib/systemd/system CACHE STRING "where systemd's system units go, under the prefix")
set(CAIRN_USERUNITDIR lib/systemd/user CACHE STRING "where systemd's user units go, under the prefix")
foreach(unit cairnd.service cairnd@.service cairnd.socket user/cairnd.service)
  file(READ deploy/systemd/${unit} text)
  string(REPLACE "/usr/sbin/cairnd" "${CMAKE_INSTALL_FULL_SBINDIR}/cairnd" text "${text}")
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/systemd/${unit} CONTENT "${text}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS deploy/systemd/${unit})
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/systemd/cairnd.service ${CMAKE_BINARY_DIR}/systemd/cairnd@.service
  ${CMAKE_BINARY_DIR}/systemd/cairnd.socket DESTINATION ${CAIRN_UNITDIR})
install(FILES ${CMAKE_BINARY_DIR}/systemd/user/cairnd.service DESTINATION ${CAIRN_USERUNITDIR})
install(FILES deploy/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME cairn.conf)
install(FILES deploy/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME cairn.conf)
install(FILES deploy/cairn.conf.example deploy/systemd/metrics-tcp.conf deploy/prometheus/cairn.rules.yml
  deploy/grafana/cairn.json DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(FILES deploy/man/cairnd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES deploy/man/cairn.conf.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES deploy/man/cairn.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)
foreach(program cairnctl cairnd) # bash looks for a file of the command's name
  install(FILES deploy/completions/cairnctl.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program})
endforeach()
install(FILES deploy/completions/_cairnctl DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES deploy/completions/cairnctl.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
