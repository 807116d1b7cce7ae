package observe

import (
	"net/netip"
	"time"
)

// Tap sees each datagram of one path, on this machine, as it leaves or arrives. It must not keep data.
type Tap interface {
	// Datagram records one UDP payload. out reports whether it left this machine.
	Datagram(at time.Time, out bool, local, remote netip.AddrPort, data []byte)
}
