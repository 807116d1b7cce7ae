package survey

import "net/netip"

// Uplink is a way out of this machine, as scamper needs it. The zero value leaves everything to the system's routes.
type Uplink struct {
	Name    string
	Device  string
	Source  netip.Addr
	Gateway netip.Addr
	// NoFrames is a device without Ethernet frames, such as a tunnel or a modem. scamper 20211212 crashes when it sends TCP by
	// one, so the probes are ICMP and UDP there, also of one flow.
	NoFrames bool
}
