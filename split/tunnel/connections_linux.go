package tunnel

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// endConnections ends the TCP connections from an IPv6 address that is gone. The kernel goes on sending from such an address, in
// contrast to IPv4. The resets that it sends now must still be blocked. A kernel without CONFIG_INET_DIAG_DESTROY ends none.
func endConnections(from netip.Addr) {
	all, _ := netlink.SocketDiagTCP(unix.AF_INET6) // as far as they could be listed
	for _, s := range all {
		if a, ok := netip.AddrFromSlice(s.ID.Source); ok && a == from {
			request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
			request.AddRawData(identify(s.ID))
			_, _ = request.Execute(unix.NETLINK_INET_DIAG, 0) // it may have ended meanwhile
		}
	}
}

// identify returns the kernel's struct inet_diag_req_v2 for one connection.
func identify(id netlink.SocketID) []byte {
	b := []byte{unix.AF_INET6, unix.IPPROTO_TCP, 0, 0, 0, 0, 0, 0} // extensions and states are for lists
	b = binary.BigEndian.AppendUint16(b, id.SourcePort)
	b = binary.BigEndian.AppendUint16(b, id.DestinationPort)
	b = append(append(b, id.Source...), id.Destination...)
	for _, word := range []uint32{id.Interface, id.Cookie[0], id.Cookie[1]} {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	return b
}
