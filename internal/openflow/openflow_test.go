package openflow

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// one is a flow with each part that a flow can have.
func one() Flow {
	return Flow{Cookie: 0x1122334455667788, Priority: 40001, Idle: 10 * time.Minute, Hard: time.Hour, Report: true,
		Match: Match{U16(EthType, 0x0800), U8(IPProto, 6), Source(netip.MustParseAddr("198.51.100.2")), Target(netip.MustParseAddr("192.0.2.1")), U16(TCPSrc, 50000), U16(TCPDst, 443), Flags(2, 18)},
		Actions: []Action{FinTimeout(2 * time.Minute), Set(MAC(EthDst, net.HardwareAddr{2, 0, 0, 0, 0, 1})), Set(Source(netip.MustParseAddr("10.9.1.2"))),
			SetTTL(64), LookAt(), Output(Normal, 0)}}
}

// ovs-ofctl ofp-print (3.1) prints the bytes as: OFPT_FLOW_MOD (OF1.4) (xid=0x7): ADD
// priority=40001,tcp,nw_src=198.51.100.2,nw_dst=192.0.2.1,tp_src=50000,tp_dst=443,tcp_flags=+syn-ack cookie:0x1122334455667788 idle:600 hard:3600
// send_flow_rem actions=fin_timeout(idle_timeout=120),set_field:02:00:00:00:00:01->eth_dst,set_field:10.9.1.2->ip_src,mod_nw_ttl:64,
// multipath(symmetric_l3l4,0,modulo_n,1,0,NXM_NX_REG15[0..15]),NORMAL
func TestFlowMod(t *testing.T) {
	const want = "050e00d800000007" + "112233445566778800000000000000000000" + "02580e109c41ffffffffffffffffffffffff00010000" +
		"0001003380000a020800800014010680001604c633640280001804c000020180001a02c35080001c0201bb00014504000200120000000000" + "0004007000000000" +
		"ffff001000002320001300780000000000190010800006060200000000010000" + "00190010800016040a09010200000000" + "0017000840000000" +
		"ffff002000002320000a00020000000000000000000000000000000f00011e04" + "00000010fffffffa0000000000000000"
	b, err := message{kind: kindFlowMod, id: 7, body: one().Add().body()}.append(nil)
	if got := hex.EncodeToString(b); err != nil || got != want {
		t.Errorf("%s, %v\nwant\n%s", got, err, want)
	}
}

// known is how a switch lists a flow (section 7.3.5.2).
func known(f Flow) []byte {
	b := make([]byte, 48)
	binary.BigEndian.PutUint16(b[14:], uint16(f.Idle/time.Second))
	binary.BigEndian.PutUint64(b[24:], f.Cookie)
	binary.BigEndian.PutUint64(b[32:], 1<<40)
	b = f.Match.append(b)
	at := len(b)
	b = appendActions(append(b, 0, applyActions, 0, 0, 0, 0, 0, 0), f.Actions)
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	binary.BigEndian.PutUint16(b, uint16(len(b)))
	return b
}

func TestParse(t *testing.T) {
	f := one()
	b := known(f)
	k, rest, err := parseKnown(append(bytes.Clone(b), 1, 2))
	if err != nil || k.Cookie != f.Cookie || k.Idle != f.Idle || k.Packets != 1<<40 || !reflect.DeepEqual(k.Match, f.Match) || !bytes.Equal(rest, []byte{1, 2}) {
		t.Fatalf("%+v, %x, %v", k, rest, err)
	}
	if source, ok := netip.AddrFromSlice(k.Sets.Get(IPv4Src)); !ok || source.String() != "10.9.1.2" || k.Sets.Get(IPv4Dst) != nil {
		t.Errorf("it sets %v", k.Sets)
	}
	if from, to := k.Match.Addresses(); from.String() != "198.51.100.2:50000" || to.String() != "192.0.2.1:443" {
		t.Errorf("it is from %v to %v", from, to)
	}
	for n := range b {
		if _, _, err := parseKnown(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are a flow", n, len(b))
		}
	}
	if r, err := parseRemoved(f.Match.append(append(binary.BigEndian.AppendUint64(nil, 7), make([]byte, 32)...))); err != nil || r.Cookie != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	packet := append(binary.BigEndian.AppendUint64(make([]byte, 8), 9), Match{{Type: InPort, Value: []byte{0, 0, 0, 3}}}.append(nil)...)
	if p, err := parsePacket(append(packet, 0, 0, 0xaa)); err != nil || p.Cookie != 9 || p.From != 3 || !bytes.Equal(p.Frame, []byte{0xaa}) {
		t.Errorf("%+v, %v", p, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(known(one()))
	f.Add(one().Match.append(make([]byte, 40)))
	f.Add(append(Match{{Type: InPort, Value: []byte{0, 0, 0, 3}}}.append(make([]byte, 16)), 0, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, rest, err := parseKnown(b); err == nil {
			k.Match.Addresses()
			if len(rest) >= len(b) {
				t.Error("it takes nothing")
			}
		}
		_, _ = parseRemoved(b)
		_, _ = parsePacket(b)
		_ = parseError(b)
	})
}

// script is a bridge that answers as it is told.
func script(t *testing.T, answer func(message) []message) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for {
			m, err := read(c)
			if err != nil {
				return
			}
			var b []byte
			for _, a := range answer(m) {
				if b, err = a.append(b); err != nil {
					return
				}
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	return socket
}

// polite answers what each connection begins with, and the rest as it is told.
func polite(rest func(message) []message) func(message) []message {
	return func(m message) []message {
		switch m.kind {
		case kindHello:
			return []message{{kind: kindHello}}
		case kindSetConfig:
			return nil
		case kindEchoRequest:
			return []message{{kind: kindEchoReply, id: m.id, body: m.body}}
		}
		return rest(m)
	}
}

func TestDialErrors(t *testing.T) {
	refuses := []message{{kind: kindError, body: []byte{0, 0, 0, 0}}}
	for name, c := range map[string]struct {
		answer func(message) []message
		want   string
	}{
		"another version": {func(message) []message { return refuses }, "the bridge does not speak OpenFlow 1.4"},
		"no hello":        {func(message) []message { return []message{{kind: kindEchoReply}} }, "this is no bridge: it does not begin with a hello of OpenFlow"},
		"it ends": {func(m message) []message {
			if m.kind == kindHello {
				return []message{{kind: kindHello}, {kind: kindFlowRemoved}}
			}
			return nil
		}, "the connection to the bridge ended: a message of OpenFlow ends early"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Dial(script(t, c.answer), func(any) {})
			if err == nil {
				err = o.Close()
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	got := make(chan any, 2)
	packet := append(append(make([]byte, 16), Match{{Type: InPort, Value: []byte{0, 0, 0, 3}}}.append(nil)...), 0, 0, 0xaa)
	flow := known(one())
	changes := 0
	o, err := Dial(script(t, polite(func(m message) []message {
		switch {
		case m.kind == kindMultipartRequest:
			part := func(more byte) message {
				return message{kind: kindMultipartReply, id: m.id, body: append([]byte{0, multipartFlow, 0, more, 0, 0, 0, 0}, flow...)}
			}
			return []message{part(multipartMore), {kind: kindPacketIn, body: packet}, {kind: kindEchoRequest, id: 99, body: nil}, part(0)}
		case m.kind == kindBundleControl && m.body[5] == bundleCommit:
			if changes++; changes == 1 {
				return []message{{kind: kindBundleControl, id: m.id, body: []byte{0, 0, 0, 1, 0, bundleCommitted, 0, 0}}}
			}
			return []message{{kind: kindError, id: m.id, body: []byte{0, 5, 0, 1}}}
		}
		return nil
	})), func(e any) { got <- e })
	if err != nil {
		t.Fatal(err)
	}
	all, err := o.Flows(0, 0)
	if err != nil || len(all) != 2 || all[1].Cookie != one().Cookie {
		t.Errorf("%+v, %v", all, err)
	}
	if p, ok := (<-got).(Packet); !ok || p.From != 3 {
		t.Errorf("got %+v", p)
	}
	if err := o.Change(one().Add(), Delete(1, 2)); err != nil {
		t.Error(err)
	}
	refused, is := errors.AsType[*Error](o.Change(one().Add()))
	if !is || refused.Type != 5 || refused.Code != 1 {
		t.Errorf("%v", refused)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if err := o.Change(one().Add()); err == nil {
		t.Error("a closed connection changes flows")
	}
}
