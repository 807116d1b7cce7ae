package tunnel

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"heddle/internal/journal"
	"heddle/path"
	"heddle/path/group"
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

// chooseMTU returns the tunnel's MTU: the one asked for or that of the narrowest path, whichever is smaller. It warns if it
// lowers the one asked for.
func chooseMTU(o *Options) (mtu int, warning string, err error) {
	least := o.leastMTU()
	asked := cmp.Or(o.MTU, o.Config.Interface.MTU)
	if asked != 0 && (asked < least || asked > 65535-overhead) {
		return 0, "", &path.Error{What: fmt.Sprintf("mtu %d", asked), Why: fmt.Sprintf("the tunnel needs %d to %d bytes", least, 65535-overhead),
			Hint: "leave it out to have it worked out"}
	}
	ways, err := o.Split.Paths()
	if err != nil {
		return 0, "", err
	}
	all, whole := group.NarrowestOf(slices.Concat(o.Split.Via, o.Split.Beside), ways)
	return o.fitMTU(asked, all, whole)
}

// leastMTU returns the smallest MTU for the tunnel's addresses.
func (o *Options) leastMTU() int {
	if slices.ContainsFunc(o.Config.Interface.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return 1280 // every link carries this (RFC 8200)
	}
	return 576 // every host takes this (RFC 791)
}

// fitMTU is [chooseMTU] for the narrowest path, and the narrowest of those that refuse larger packets. On the others, packets
// of a tunnel that must not be smaller leave as fragments, if somebody asked for its MTU.
func (o *Options) fitMTU(asked int, all, whole group.Narrow) (mtu int, warning string, err error) {
	least := o.leastMTU()
	if asked == 0 {
		// Loopback has 65536, which no other network carries.
		mtu = min(cmp.Or(all.Size, usualMTU), 65535) - overhead
	} else if mtu = all.Size - o.headers(); all.Size == 0 || asked <= mtu {
		return asked, "", nil
	} else if whole.Size == 0 || whole.Size-o.headers() >= least {
		mtu = max(mtu, least)
	}
	if mtu < least {
		return 0, "", &path.Error{What: "mtu", Why: fmt.Sprintf("path %s carries packets of %d bytes, too few for a tunnel that needs %d", all.Path, all.Size, least),
			Hint: "leave that path out, or raise its MTU"}
	}
	if asked > mtu {
		warning = fmt.Sprintf("the MTU of the tunnel is %d instead of %d, since path %s carries packets of %d bytes", mtu, asked, all.Path, all.Size)
	}
	return mtu, warning, nil
}

// headers returns what WireGuard adds to a packet on its way to the server, in bytes.
func (o *Options) headers() int {
	if a, err := netip.ParseAddrPort(o.Config.Peer.Endpoint); err == nil && a.Addr().Unmap().Is4() {
		return overhead - 20
	}
	return overhead
}
