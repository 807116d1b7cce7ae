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

// Options say how one WireGuard file becomes a tunnel.
type Options struct {
	// Name is the tunnel's name, and its device's: at most 15 bytes where there is a device.
	Name   string
	Config *wgconf.Config
	// Split says over which paths and how. Session, To and Mark are filled in here.
	Split split.Options
	// Userspace makes a network stack inside this process instead of a TUN device, and changes nothing on this machine.
	Userspace bool
	// KillSwitch keeps everything else from leaving this machine while a full tunnel is up. It does nothing for others.
	KillSwitch bool
	// Hooks permits the commands of the file.
	Hooks bool
	// MTU of the tunnel in bytes, 0 to take the file's, or to work it out.
	MTU int
	// Dir is where the journal is kept, such as /run/heddle; only its owner may write there.
	Dir string
	// ResolvConf is the file that names the machine's resolvers; empty means /etc/resolv.conf.
	ResolvConf string
	// Log takes what a person should know; nil means [slog.Default].
	Log *slog.Logger
}

func (o *Options) log() *slog.Logger { return cmp.Or(o.Log, slog.Default()) }

// plan is all that a tunnel changes on this machine, in order.
type plan struct {
	mark  uint32
	mtu   int
	table uint32 // for default routes, 0 where there are none
	// before makes the kill switch and the device, after sends traffic into it.
	before, after []change
}

// WireGuard adds 40 bytes of IPv6 header, 8 of UDP, 16 of its own and 16 of tag: wg-quick(8) leaves 80.
const overhead = 80

// usualMTU is that of Ethernet.
const usualMTU = 1500

type change = journal.Change

// chooseMTU takes what was asked for, or else what the narrowest path carries less WireGuard's own bytes.
func chooseMTU(o *Options) (int, error) {
	v6 := slices.ContainsFunc(o.Config.Interface.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() })
	least := 576 // what each host takes (RFC 791)
	if v6 {
		least = 1280 // what each link carries (RFC 8200)
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
	// Loopback has 65536, which no network beyond carries.
	mtu := min(cmp.Or(narrowest, usualMTU), 65535) - overhead
	if mtu < least {
		return 0, &path.Error{What: "mtu", Why: fmt.Sprintf("the narrowest path carries %d bytes, too few for a tunnel that needs %d", narrowest, least),
			Hint: "leave that path out, or raise its MTU"}
	}
	return mtu, nil
}
