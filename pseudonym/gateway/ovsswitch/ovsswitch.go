// Package ovsswitch leads the packets of moved connections to their tenants by flows of a bridge of Open vSwitch, on this machine. Package lead
// says what a switch does. The bridge joins the networks of clients and tenants and this machine, and forwards by addresses of Ethernet, as it
// does without a controller. No packet of a moved connection passes the kernel's routing.
//
// Flows of OpenFlow cannot follow a connection as the other kinds of switches do, so the tenant is asked. When a client sends the first packet
// of a new connection from a port that has an entry, the bridge hands it to this process, which sends the tenant an acknowledgement out of place.
// A tenant that has no such connection answers with a reset. Then the entry ends, and the client's packet goes on to where it was sent. A tenant that
// has the connection answers the client, as it would answer that packet (RFC 5961, section 4). A client that means it breaks the old connection off
// then; a forger does not see the answer. The bridge also hands routers' messages about packets that are too large to this process. All else goes
// on without it.
package ovsswitch

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"

	"heddle/pseudonym/gateway/lead"
)

// Options configure a switch.
type Options struct {
	Bridge string // its name, or the file of the socket at which it is managed, with a slash
	Most   int    // connections; lead.Most if it is 0
}

func (o Options) most() int { return cmp.Or(o.Most, lead.Most) }

// run is where Open vSwitch has its sockets.
const run = "/run/openvswitch"

// socket is the file of the socket at which the bridge is managed.
func (o Options) socket() string {
	if strings.Contains(o.Bridge, "/") {
		return o.Bridge
	}
	return filepath.Join(run, o.Bridge+".mgmt")
}

// cacheFor is how long Open vSwitch's cache may do what a flow said before a change. It looks at the cache twice a second, unless it is told to
// sooner (ovs-vswitchd.conf.db(5), max-revalidator).
const cacheFor = 2 * time.Second

// silentFor is how long the flow of a client's packets lasts after the last one. When one flow of a connection ends, the others end too. It must not end
// before the tenant's: for a quarter of an hour the tenant repeats what the client does not acknowledge (tcp_retries2).
const silentFor = 3 * lead.Idle
