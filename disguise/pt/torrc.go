package pt

import (
	"fmt"

	"heddle/disguise/handshake"
)

// The text explains only what a person has to do. Debian's Tor runs confined, which nothing else says when it fails.
const torrc = `# The bridge: add these lines to its torrc, and restart tor.
BridgeRelay 1
ORPort 127.0.0.1:auto
AssumeReachable 1
ExtORPort auto
PublishServerDescriptor 0
ServerTransportPlugin heddle exec %[1]s disguise pt
ServerTransportListenAddr heddle %[2]s
# On Debian, AppArmor has to permit it: add the line
#   %[1]s PUx,
# to /etc/apparmor.d/local/system_tor, and run: apparmor_parser -r /etc/apparmor.d/system_tor
# The bridge line is in pt_state/%[3]s below tor's DataDirectory, on Debian /var/lib/tor.

# A client: add these lines to its torrc, and restart tor.
UseBridges 1
ClientTransportPlugin heddle exec %[1]s disguise pt
%[4]s
`

// Torrc returns both parts of a torrc that uses the transport. program is the file of this program at both ends. line is a bridge
// line, or empty for a placeholder.
func Torrc(program, listen, line string) string {
	if line == "" {
		line = "Bridge " + handshake.Transport + " <the rest of the bridge line>"
	}
	return fmt.Sprintf(torrc, program, listen, LineFile, line)
}
