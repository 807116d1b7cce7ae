package survey

import "net/netip"

// Uplink is a way out of this machine, as scamper must be told of it. The zero value leaves all to the system's routes.
type Uplink struct {
	Name    string
	Device  string
	Source  netip.Addr
	Gateway netip.Addr
	// NoFrames is a device without Ethernet's frames, such as a tunnel or a modem. scamper 20211212 cannot send TCP by
	// one, and crashes over it; so its probes are ICMP and UDP there, of one flow as well.
	NoFrames bool
}
