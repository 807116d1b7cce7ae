package tunnel

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"heddle/internal/journal"
	"heddle/path"
	"heddle/path/wgconf"
	"heddle/split"
)

// Options configure the tunnel of one WireGuard file.
type Options struct {
	Name      string // name of the tunnel and its device; at most 15 bytes if there is a device
	Config    *wgconf.Config
	Split     split.Options // paths and schedule; Session, To and Mark are filled in here
	Userspace bool          // a network stack in this process instead of a TUN device; changes nothing on this machine
	// KillSwitch blocks all other traffic of a full tunnel, and packets to AllowedIPs outside any other tunnel. Both hold before
	// the tunnel is up and after a crash. It has no effect if the file has a Table line.
	KillSwitch bool
	Hooks      bool         // permit the commands of the file
	MTU        int          // in bytes; 0: the file's, or computed
	Dir        string       // directory of the journal, such as /run/heddle; only its owner may write there
	ResolvConf string       // file that names the machine's resolvers; empty means /etc/resolv.conf
	Log        *slog.Logger // messages for people; nil means [slog.Default]
}

func (o *Options) log() *slog.Logger { return cmp.Or(o.Log, slog.Default()) }

// plan holds all that a tunnel changes on this machine, in order.
type plan struct {
	mark          uint32
	mtu           int
	table         uint32    // for default routes, 0 if there are none
	guard         *firewall // keeps packets in; nil without one
	noIPv6        bool      // IPv6 is off, so the kernel refuses addresses and routes of it
	warnings      []string  // what is left out, for a person
	before, after []change  // before: guard and device; after: routes into it
}

// overhead is that of WireGuard in bytes: IPv6 header 40, UDP 8, own header 16, tag 16, as in wg-quick(8).
const overhead = 80

// usualMTU is Ethernet's.
const usualMTU = 1500

type change = journal.Change

// chooseMTU returns the MTU asked for, or else the narrowest path's less WireGuard's overhead.
func chooseMTU(o *Options) (int, error) {
	v6 := slices.ContainsFunc(o.Config.Interface.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() })
	least := 576 // every host takes this (RFC 791)
	if v6 {
		least = 1280 // every link carries this (RFC 8200)
	}
	asked := cmp.Or(o.MTU, o.Config.Interface.MTU)
	if asked != 0 && (asked < least || asked > 65535-overhead) {
		return 0, &path.Error{What: fmt.Sprintf("mtu %d", asked), Why: fmt.Sprintf("the tunnel needs %d to %d bytes", least, 65535-overhead),
			Hint: "leave it out to have it worked out"}
	}
	if asked != 0 {
		return asked, nil
	}
	narrowest := 0
	ways, err := o.Split.Paths()
	if err != nil {
		return 0, err
	}
	for _, way := range ways {
		if mtu := way.Describe().MTU; mtu > 0 && (narrowest == 0 || mtu < narrowest) {
			narrowest = mtu
		}
	}
	// Loopback has 65536, which no other network carries.
	mtu := min(cmp.Or(narrowest, usualMTU), 65535) - overhead
	if mtu < least {
		return 0, &path.Error{What: "mtu", Why: fmt.Sprintf("the narrowest path carries %d bytes, too few for a tunnel that needs %d", narrowest, least),
			Hint: "leave that path out, or raise its MTU"}
	}
	return mtu, nil
}
