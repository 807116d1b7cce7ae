package pt

import (
	"cmp"
	"fmt"
	"strings"

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
%[2]sServerTransportListenAddr heddle %[3]s
# On Debian, AppArmor has to permit it: add the line
#   %[1]s PUx,
# to /etc/apparmor.d/local/system_tor, and run: apparmor_parser -r /etc/apparmor.d/system_tor
# The bridge line is in pt_state/%[4]s below tor's DataDirectory, on Debian /var/lib/tor.

# A client: add these lines to its torrc, and restart tor.
UseBridges 1
ClientTransportPlugin heddle exec %[1]s disguise pt%[5]s
%[6]s
`

// Torrc is both parts of a torrc that uses the transport.
type Torrc struct {
	Program string   // the file of this program at both ends
	Listen  string   // where clients come to
	Behind  bool     // to a web server in front of the bridge
	Options []string // of the bridge, NAME=VALUE
	Cover   string   // that a client has to name, or ""
	Line    string   // a bridge line, or "" for a placeholder
}

// String returns the text.
func (t Torrc) String() string {
	var options, cover string
	if len(t.Options) > 0 {
		options = "ServerTransportOptions heddle " + strings.Join(t.Options, " ") + "\n"
	}
	if t.Behind {
		options += "# Your web server listens here, and passes on to the transport:\n"
	}
	if t.Cover != "" {
		cover = " --cover " + t.Cover
	}
	line := cmp.Or(t.Line, "Bridge "+handshake.Transport+" <the rest of the bridge line>")
	return fmt.Sprintf(torrc, t.Program, options, t.Listen, LineFile, cover, line)
}
