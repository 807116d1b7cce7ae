package ovsswitch

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	router4, client4, public4, tenant4 = netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.9.1.2")
	router6, client6, public6, tenant6 = netip.MustParseAddr("2001:db8:d::9"), netip.MustParseAddr("2001:db8:c::2"), netip.MustParseAddr("2001:db8:77::1"), netip.MustParseAddr("fd09::2")
)

// of makes what a router says of a packet between two ports.
func of(t testing.TB, router, from, to netip.Addr, kind, code uint8, options ...layers.IPv4Option) []byte {
	t.Helper()
	segment := &layers.TCP{SrcPort: 443, DstPort: 50000, Seq: 7}
	ethernet := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 8}, EthernetType: layers.EthernetTypeIPv4}
	var b []byte
	var err error
	if router.Is4() {
		quoted := &layers.IPv4{Version: 4, TTL: 60, Protocol: layers.IPProtocolTCP, SrcIP: from.AsSlice(), DstIP: to.AsSlice(), Options: options}
		_ = segment.SetNetworkLayerForChecksum(quoted)
		inner, _ := serialize(quoted, segment)
		b, err = serialize(ethernet, &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: router.AsSlice(), DstIP: from.AsSlice()},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code), Seq: 1280}, gopacket.Payload(inner[:28+len(options)]))
	} else {
		ethernet.EthernetType = layers.EthernetTypeIPv6
		quoted := &layers.IPv6{Version: 6, HopLimit: 60, NextHeader: layers.IPProtocolTCP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		_ = segment.SetNetworkLayerForChecksum(quoted)
		inner, _ := serialize(quoted, segment)
		outer := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: router.AsSlice(), DstIP: from.AsSlice()}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, code)}
		_ = icmp.SetNetworkLayerForChecksum(outer)
		b, err = serialize(ethernet, outer, icmp, gopacket.Payload{0, 0, 5, 0}, gopacket.Payload(inner))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A message with other addresses is what the router would have said with these.
func TestReaddress(t *testing.T) {
	for name, c := range map[string]struct {
		router, client, public, tenant netip.Addr
		options                        []layers.IPv4Option
	}{
		"IPv4": {router4, client4, public4, tenant4, nil}, "with options": {router4, client4, public4, tenant4, []layers.IPv4Option{nop, nop, nop, nop}},
		"IPv6": {router6, client6, public6, tenant6, nil},
	} {
		kind, code := uint8(unreachable4), uint8(tooLarge4)
		if c.router.Is6() {
			kind, code = tooBig6, 0
		}
		m, ok := parseMessage(of(t, c.router, c.public, c.client, kind, code, c.options...))
		if !ok || !m.tooLarge || m.from != netip.AddrPortFrom(c.public, 443) || m.to != netip.AddrPortFrom(c.client, 50000) {
			t.Fatalf("%s: %+v, %v", name, m, ok)
		}
		m.readdress(netip.Addr{}, c.tenant, c.tenant, netip.Addr{})
		got, err := m.frame(net.HardwareAddr{2, 0, 0, 0, 0, 7}, 0)
		want := of(t, c.router, c.tenant, c.client, kind, code, c.options...)
		want[5] = 7 // the end of the address
		// Nobody corrects the checksum of the quoted segment, which is in the message of IPv6: nobody checks it. That of the message covers it.
		if c.router.Is6() {
			for _, b := range [][]byte{got, want} {
				copy(b[14+40+2:], make([]byte, 2))
				copy(b[14+40+8+40+16:], make([]byte, 2))
			}
		}
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: it became %v\n%x, want\n%x", name, err, got, want)
		}
	}
}

var nop = layers.IPv4Option{OptionType: 1}

func TestParseMessage(t *testing.T) {
	for name, c := range map[string]struct {
		frame       []byte
		is, tooLong bool
	}{
		"unreachable":          {of(t, router4, client4, tenant4, 3, 1), true, false},
		"time exceeded":        {of(t, router4, client4, tenant4, 11, 0), true, false},
		"with options":         {of(t, router4, client4, tenant4, 3, 1, nop, nop, nop, nop), true, false},
		"an answer to a ping":  {of(t, router4, client4, tenant4, 0, 0), false, false},
		"too big":              {of(t, router6, client6, tenant6, 2, 0), true, true},
		"a parameter problem":  {of(t, router6, client6, tenant6, 4, 0), true, false},
		"an advertisement":     {of(t, router6, client6, tenant6, 136, 0), false, false},
		"nothing":              {nil, false, false},
		"the end is missing":   {of(t, router4, client4, tenant4, 3, 4)[:50], false, false},
		"the end is missing 6": {of(t, router6, client6, tenant6, 2, 0)[:80], false, false},
	} {
		if m, ok := parseMessage(c.frame); ok != c.is || ok && m.tooLarge != c.tooLong {
			t.Errorf("%s: %v, %v", name, ok, m.tooLarge)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(of(f, router4, client4, tenant4, 3, 4))
	f.Add(of(f, router4, client4, tenant4, 3, 4, nop, nop, nop, nop))
	f.Add(of(f, router6, client6, tenant6, 2, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := parseMessage(b)
		if !ok {
			return
		}
		a := [4]netip.Addr{router4, client4, public4, tenant4}
		if m.ip6 != nil {
			a = [4]netip.Addr{router6, client6, public6, tenant6}
		}
		m.readdress(a[0], a[1], a[2], a[3])
		frame, err := m.frame(net.HardwareAddr{2, 0, 0, 0, 0, 1}, 64)
		if err != nil {
			return
		}
		if again, ok := parseMessage(frame); !ok || again.from.Addr() != a[2] || again.to.Addr() != a[3] {
			t.Errorf("%x became %x: %+v", b, frame, again)
		}
	})
}
