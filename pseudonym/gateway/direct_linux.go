package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/sysctl"
	"heddle/path"
)

// Questions for [path.Ask].
type (
	deviceOf  struct{ own netip.Addr }
	rulesOf   struct{ family int }
	wayBackOf struct {
		gateway     netip.AddrPort
		client, own netip.Addr
	}
	// oneMachine is about two neighbours. The kernel does not tell the watch how these change, so an answer holds within one second.
	oneMachine struct {
		device int
		a, b   netip.Addr
		second int64
	}
)

// wayBack is how this machine answers a client.
type wayBack struct {
	device  int
	next    netip.Addr // hop
	byPorts bool       // rules look at the clients' ports
}

// answersFrom reports why this machine cannot answer a client from the gateway's address, or nil. The gateway's packets arrive at the device that has the address
// own, from the address peer of the gateway's machine.
func answersFrom(now time.Time, gateway, client netip.AddrPort, own, peer netip.Addr) error {
	back, err := path.Ask(wayBackOf{gateway, client.Addr(), own}, func() (wayBack, error) { return askWayBack(gateway, client, own) })
	if back.byPorts {
		back, err = askWayBack(gateway, client, own)
	}
	if err != nil {
		return err
	}
	return leavesPast(now, gateway.Addr(), client.Addr(), peer, back)
}

func askWayBack(gateway, client netip.AddrPort, own netip.Addr) (back wayBack, err error) {
	rules, err := rulesFor(client.Addr())
	if err != nil {
		return back, err
	}
	back.byPorts = slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Sport != nil })
	device, err := path.Ask(deviceOf{own}, func() (*net.Interface, error) { return askDevice(own) })
	if err != nil {
		return back, err
	}
	if err := takesFrom(device, gateway, client); err != nil {
		return back, err
	}
	routes, err := netlink.RouteGet(client.Addr().AsSlice())
	if err != nil || len(routes) == 0 {
		return back, cannotAnswer(gateway.Addr(), fmt.Sprintf("it has no route to %v", client.Addr()), "", err)
	}
	next, ok := netip.AddrFromSlice(routes[0].Gw)
	if !ok {
		next = client.Addr()
	}
	back.device, back.next = routes[0].LinkIndex, next.Unmap()
	return back, nil
}

func rulesFor(client netip.Addr) ([]netlink.Rule, error) {
	family := nl.GetIPFamily(client.AsSlice())
	return path.Ask(rulesOf{family}, func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
}

// askDevice asks which device has an address.
func askDevice(own netip.Addr) (*net.Interface, error) {
	addresses, err := netlink.AddrList(nil, nl.GetIPFamily(own.AsSlice()))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(addresses, func(a netlink.Addr) bool { return a.IP.Equal(own.AsSlice()) })
	if i < 0 {
		return nil, fmt.Errorf("no device has the address %v", own)
	}
	return net.InterfaceByIndex(addresses[i].LinkIndex)
}

func cannotAnswer(gateway netip.Addr, why, hint string, err error) error {
	return &errhint.Error{What: "this machine cannot answer from " + gateway.String(), Why: why, Hint: hint, Err: err}
}

// takesFrom fails unless the machine takes what a client sends to the gateway's address, and what routers tell of the way to that client. It must not
// take everything: the kernel would tell its neighbours that it has the address, as it does with one in the table local.
func takesFrom(device *net.Interface, gateway, client netip.AddrPort) error {
	hint := takesBy(device.Name, gateway.Addr())
	icmp := byte(unix.IPPROTO_ICMP)
	if gateway.Addr().Is6() {
		icmp = unix.IPPROTO_ICMPV6
	}
	for _, p := range []struct {
		number byte
		has    string
	}{{unix.IPPROTO_TCP, "packets of clients"}, {icmp, "messages of routers (ICMP)"}} {
		takes, err := takesIn(device.Index, p.number, client, gateway)
		switch {
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL): // before and since Linux 6.13
			return cannotAnswer(gateway.Addr(), fmt.Sprintf("%s takes nothing of %v, to which packets would leave by another device (rp_filter)", device.Name, client.Addr()),
				"sysctl -w "+sysctl.Name("/proc/sys/net/ipv4/conf/"+device.Name+"/rp_filter")+"=2", nil)
		case !takes:
			return cannotAnswer(gateway.Addr(), "it does not take "+p.has+" to that address at "+device.Name, hint, err)
		}
	}
	// The kernel looks for a route too before it answers a question for an address (ARP).
	if all, _ := takesIn(device.Index, unix.IPPROTO_UDP, client, gateway); all {
		return cannotAnswer(gateway.Addr(), "it takes all packets to that address, and would tell the network that it is the gateway",
			fmt.Sprintf("remove the route or rule by which it does (ip route get %v from %v iif %s), and run %s", gateway.Addr(), client.Addr(), device.Name, hint), nil)
	}
	return nil
}

// takesIn reports whether the kernel would take a packet that arrives at a device for its own. An error says why not.
func takesIn(device int, protocol byte, from, to netip.AddrPort) (bool, error) {
	bits := uint8(to.Addr().BitLen())
	ask := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_REQUEST)
	ask.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(nl.GetIPFamily(to.Addr().AsSlice())), Dst_len: bits, Src_len: bits}})
	for kind, value := range map[int][]byte{
		unix.RTA_DST: to.Addr().AsSlice(), unix.RTA_SRC: from.Addr().AsSlice(), unix.RTA_IIF: binary.NativeEndian.AppendUint32(nil, uint32(device)),
		unix.RTA_IP_PROTO: {protocol}, unix.RTA_SPORT: binary.BigEndian.AppendUint16(nil, from.Port()), unix.RTA_DPORT: binary.BigEndian.AppendUint16(nil, to.Port()),
	} {
		ask.AddData(nl.NewRtAttr(kind, value))
	}
	answers, err := ask.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil || len(answers) == 0 {
		return false, err
	}
	return nl.DeserializeRtMsg(answers[0]).Type == unix.RTN_LOCAL, nil
}

// end ends this machine's socket of a connection, with a reset that the client's new connection from that port does not take for its own.
func end(local, remote netip.AddrPort) error {
	// struct inet_diag_req_v2 and inet_diag_msg of linux/inet_diag.h. The cookie makes sure that it is not another socket which is ended, such as a listening one.
	const state, listening, cookie, cookieEnd = 1, 10, 44, 52
	id := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, local.Port()), remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		id = append(id, append(a.AsSlice(), make([]byte, 16-a.BitLen()/8)...)...)
	}
	id = append(id, make([]byte, 4)...) // of any device
	ask := func(kind int, cookie []byte) ([][]byte, error) {
		r := nl.NewNetlinkRequest(kind, unix.NLM_F_ACK)
		r.AddRawData(slices.Concat([]byte{byte(nl.GetIPFamily(local.Addr().AsSlice())), unix.IPPROTO_TCP, 0, 0, 255, 255, 255, 255}, id, cookie))
		return r.Execute(unix.NETLINK_INET_DIAG, 0)
	}
	found, err := ask(nl.SOCK_DIAG_BY_FAMILY, bytes.Repeat([]byte{255}, cookieEnd-cookie))
	if err == nil && (len(found) == 0 || len(found[0]) < cookieEnd || found[0][state] == listening) {
		err = unix.ENOENT
	}
	if err == nil {
		_, err = ask(nl.SOCK_DESTROY, found[0][cookie:cookieEnd])
	}
	if err != nil {
		return fmt.Errorf("the former connection of %v with %v: %w", remote, local, err)
	}
	return nil
}

// leavesPast fails if answers to a client would leave by the gateway's machine, which takes nothing that comes from its own address.
func leavesPast(now time.Time, gateway, client, peer netip.Addr, back wayBack) error {
	same := back.next == peer
	if !same {
		var err error
		of := oneMachine{back.device, back.next, peer, now.Unix()}
		if same, err = path.Ask(of, of.ask); err != nil || !same {
			return err
		}
	}
	rules, err := rulesFor(client)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Src != nil && r.Src.Contains(gateway.AsSlice()) }) {
		return nil // the kernel tells nobody of the route from an address that is none of the machine's
	}
	return cannotAnswer(gateway, fmt.Sprintf("its route to %v leads through the gateway's machine", client),
		fmt.Sprintf("lead what comes from that address to another router: ip rule add from %v lookup TABLE, with a default route in TABLE", gateway), nil)
}

// ask reports whether both have the same Ethernet address.
func (m oneMachine) ask() (bool, error) {
	neighbours, err := netlink.NeighList(m.device, nl.GetIPFamily(m.a.AsSlice()))
	if err != nil {
		return false, err
	}
	mac := func(of netip.Addr) string {
		for _, n := range neighbours {
			if n.IP.Equal(of.AsSlice()) {
				return n.HardwareAddr.String()
			}
		}
		return ""
	}
	return mac(m.a) != "" && mac(m.a) == mac(m.b), nil
}

// CheckDirect reports why this machine could not answer clients from the address of a gateway, or nil. It looks for a device at which it takes packets of a client
// of no network here.
func CheckDirect(gateway netip.Addr) error {
	client := netip.MustParseAddrPort("198.51.100.1:50000")
	if gateway.Is6() {
		client = netip.MustParseAddrPort("[2001:db8::1]:50000")
	}
	devices, err := net.Interfaces()
	if err != nil {
		return err
	}
	why := cannotAnswer(gateway, "no device is up", "", nil)
	for _, d := range slices.Backward(devices) {
		if d.Flags&net.FlagLoopback != 0 || d.Flags&net.FlagUp == 0 {
			continue
		}
		if why = takesFrom(&d, netip.AddrPortFrom(gateway, 443), client); why == nil {
			return nil
		}
	}
	return why
}
