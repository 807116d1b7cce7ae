package bpfswitch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/lead/leadtest"
)

// pins gives a directory in a BPF file system of the test's own.
func pins(t testing.TB) string {
	t.Helper()
	return filepath.Join(nstest.PinsBPF(t), "heddle")
}

func kindOf(t *testing.T) leadtest.Kind {
	o := Options{Pins: pins(t)}
	return leadtest.Kind{New: func() (leadtest.Switch, error) { return New(o) }, Remove: remove, Has: has}
}

func remove(*leadtest.World) error {
	devices, err := netlink.LinkList()
	for _, d := range devices {
		for name, hook := range map[string]bpf.Hook{FilterIn: bpf.In, FilterOut: bpf.Out} {
			err = errors.Join(err, (&bpf.Filter{Index: d.Attrs().Index, Hook: hook, Name: name}).Undo())
		}
	}
	return errors.Join(err, nft.Remove(nft.Inet(Table)))
}

func has(w *leadtest.World, what string) (bool, error) {
	s := w.To.(*Switch)
	if what == "direct" {
		err := s.direct.Lookup(keyOf(w.At, w.Public), &leadDirect{})
		return err == nil, gone(err)
	}
	if what == "back" {
		_, err := get(s.back, keyOf(w.Inside, w.At))
		return err == nil, gone(err)
	}
	e, err := get(s.to, keyOf(w.At, w.Public))
	if err != nil {
		return false, gone(err)
	}
	return map[string]bool{"to": true, "finished": e.State&finished != 0, "answered": e.State&answered != 0, "ended": e.ended()}[what], nil
}

func TestSwitch(t *testing.T) {
	if nstest.OwnMounts(t) {
		leadtest.Run(t, kindOf)
	}
}

func TestRefusals(t *testing.T) {
	if nstest.OwnMounts(t) {
		leadtest.Refusals(t, kindOf)
	}
}

func want(t *testing.T, w *leadtest.World, all map[string]bool) {
	t.Helper()
	for what, want := range all {
		if got, err := has(w, what); err != nil || got != want {
			t.Errorf("the switch has %s: %v, %v", what, got, err)
		}
	}
}

// later is the monotonic clock's time in a while.
func later(d time.Duration) uint64 { return bpf.Monotonic() + uint64(d) }

// Entries end some time after the last packet, and those of connections that have ended sooner.
func TestEntriesEnd(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewWorld(t, kindOf(t), false)
	s := w.To.(*Switch)
	sweep := func(at uint64) {
		t.Helper()
		if err := s.sweep(at); err != nil {
			t.Fatal(err)
		}
	}
	near, far := w.Moved()
	w.Talk(near, far)
	sweep(later(lead.Idle - time.Minute))
	want(t, w, map[string]bool{"to": true, "back": true})
	w.Finish(near, far)
	want(t, w, map[string]bool{"ended": true})
	sweep(later(lead.EndedFor - time.Minute))
	want(t, w, map[string]bool{"to": true, "back": true})
	// The tenant sends its last byte again, whose acknowledgement somebody keeps back.
	k := keyOf(w.Inside, w.At)
	e, err := get(s.back, k)
	e.Last += uint64(time.Minute)
	if err = errors.Join(err, s.back.Put(&k, &e)); err != nil {
		t.Fatal(err)
	}
	sweep(later(lead.EndedFor))
	want(t, w, map[string]bool{"to": true, "back": true})
	sweep(later(lead.EndedFor + time.Minute))
	want(t, w, map[string]bool{"to": false, "back": false})

	near, far = w.Moved()
	w.Talk(near, far)
	sweep(later(lead.Idle))
	want(t, w, map[string]bool{"to": false, "back": false})
}

// The programs use no entry that is over, though no process removes it.
func TestIdleEntry(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewWorld(t, kindOf(t), false)
	s := w.To.(*Switch)
	near, far := w.Moved()
	w.Talk(near, far)
	for m, k := range map[*ebpf.Map]leadKey{s.to: keyOf(w.At, w.Public), s.back: keyOf(w.Inside, w.At)} {
		e, err := get(m, k)
		e.Last -= uint64(lead.Idle)
		if err = errors.Join(err, m.Put(&k, &e)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := near.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) { // the gateway knows no such connection
		t.Errorf("the client reads %v", err)
	}
}

// While a program looks at its clock, another processor's packet may write a later time.
func TestLaterEntry(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewWorld(t, kindOf(t), false)
	s := w.To.(*Switch)
	near, far := w.Moved()
	for m, k := range map[*ebpf.Map]leadKey{s.to: keyOf(w.At, w.Public), s.back: keyOf(w.Inside, w.At)} {
		e, err := get(m, k)
		e.Last += uint64(time.Hour)
		if err = errors.Join(err, m.Put(&k, &e)); err != nil {
			t.Fatal(err)
		}
	}
	w.Talk(near, far)
}

// A packet prolongs the entry of its own direction.
func TestPacketsProlong(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewWorld(t, kindOf(t), false)
	s := w.To.(*Switch)
	near, far := w.Moved()
	entries := map[*ebpf.Map]leadKey{s.to: keyOf(w.At, w.Public), s.back: keyOf(w.Inside, w.At)}
	before := bpf.Monotonic() - uint64(time.Minute)
	for m, k := range entries {
		e, err := get(m, k)
		e.Last = before
		if err = errors.Join(err, m.Put(&k, &e)); err != nil {
			t.Fatal(err)
		}
	}
	w.Talk(near, far)
	for m, k := range entries {
		if e, err := get(m, k); err != nil || e.Last <= before {
			t.Errorf("%v: the last packet was at %d, and that is not after %d; %v", m, e.Last, before, err)
		}
	}
}

// Another switch learns what this one leads, and can keep what it leads for another one.
func TestEachAndTouch(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			if !nstest.OwnMounts(t) {
				return
			}
			w := leadtest.NewWorld(t, kindOf(t), v6)
			s := w.To.(*Switch)
			all := func() (all []lead.Connection) {
				t.Helper()
				if err := s.Each(func(c lead.Connection) error {
					all = append(all, c)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				return all
			}
			before := time.Now()
			near, far := w.Moved()
			w.Talk(near, far)
			if got := all(); len(got) != 1 || got[0].Client != w.At || got[0].Gateway != w.Public || got[0].Tenant != w.Inside || got[0].Last.Before(before) || got[0].Last.After(time.Now()) {
				t.Errorf("%+v", got)
			}
			for _, c := range []struct {
				tenant  netip.AddrPort
				unless  time.Duration
				has, at bool // now
			}{{netip.AddrPortFrom(w.Public.Addr(), w.Inside.Port()), 0, false, false}, {w.Inside, lead.Idle, true, false}, {w.Inside, 0, true, true}} {
				before := bpf.Monotonic() - uint64(time.Minute)
				for m, k := range map[*ebpf.Map]leadKey{s.to: keyOf(w.At, w.Public), s.back: keyOf(w.Inside, w.At)} {
					e, err := get(m, k)
					e.Last = before
					if err = errors.Join(err, m.Put(&k, &e)); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := s.Touch(w.At, w.Public, c.tenant, c.unless); err != nil || got != c.has {
					t.Errorf("%v: %v, %v", c.tenant, got, err)
				}
				for m, k := range map[*ebpf.Map]leadKey{s.to: keyOf(w.At, w.Public), s.back: keyOf(w.Inside, w.At)} {
					if e, err := get(m, k); err != nil || (e.Last != before) != c.at {
						t.Errorf("%+v: the last packet of %v was at %d, %v", c, m, e.Last, err)
					}
				}
			}
			w.Talk(near, far)
			w.Finish(near, far)
			want(t, w, map[string]bool{"ended": true})
			if got := all(); len(got) != 0 {
				t.Errorf("%+v have ended", got)
			}
			if got, err := s.Touch(w.Public, w.At, w.Inside, 0); got || err != nil {
				t.Errorf("of an unknown connection: %v, %v", got, err)
			}
		})
	}
}

// priorityAt is the offset of priority in struct __sk_buff.
const priorityAt = 32

// pass runs a program with a frame of a priority.
func pass(t *testing.T, p *ebpf.Program, frame []byte, priority uint32) (after []byte, becomes uint32) {
	t.Helper()
	const context = 192 // bytes of struct __sk_buff
	now := make([]byte, context)
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: binary.NativeEndian.AppendUint32(make([]byte, priorityAt), priority), ContextOut: now}
	if _, err := p.Run(&o); err != nil {
		t.Fatal(err)
	}
	return o.DataOut, binary.NativeEndian.Uint32(now[priorityAt:])
}

// Packets have the switch's priority within this machine alone. Fragments pass as they are, since what follows has no port, and so do messages to
// somebody else.
func TestPrograms(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewWorld(t, kindOf(t), false)
	w.Moved()
	s := w.To.(*Switch)
	frame := func(flags layers.IPv4Flag) []byte {
		ip := &layers.IPv4{Version: 4, TTL: 60, Protocol: layers.IPProtocolTCP, SrcIP: w.At.Addr().AsSlice(), DstIP: w.Public.Addr().AsSlice(), Flags: flags}
		tcp := &layers.TCP{SrcPort: layers.TCPPort(w.At.Port()), DstPort: layers.TCPPort(w.Public.Port()), ACK: true}
		b := gopacket.NewSerializeBuffer()
		err := errors.Join(tcp.SetNetworkLayerForChecksum(ip), gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}, ip, tcp))
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	whole, part := frame(0), frame(layers.IPv4MoreFragments)
	if after, priority := pass(t, s.programs[bpf.EthernetHeader].in, whole, 7); bytes.Equal(after, whole) || priority != untracked {
		t.Errorf("a packet of the connection: priority %#x\n%x", priority, after)
	}
	if after, priority := pass(t, s.programs[bpf.EthernetHeader].in, part, 7); !bytes.Equal(after, part) || priority != 7 {
		t.Errorf("a fragment: priority %#x\n%x", priority, after)
	}
	tooLarge := func(to netip.Addr) []byte {
		about := &layers.IPv4{Version: 4, TTL: 60, Protocol: layers.IPProtocolTCP, SrcIP: w.Public.Addr().AsSlice(), DstIP: w.At.Addr().AsSlice()}
		tcp := &layers.TCP{SrcPort: layers.TCPPort(w.Public.Port()), DstPort: layers.TCPPort(w.At.Port()), ACK: true}
		b := gopacket.NewSerializeBuffer()
		err := errors.Join(tcp.SetNetworkLayerForChecksum(about), gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4},
			&layers.IPv4{Version: 4, TTL: 60, Protocol: layers.IPProtocolICMPv4, SrcIP: w.At.Addr().AsSlice(), DstIP: to.AsSlice()},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded)}, about, tcp))
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for to, want := range map[netip.Addr]bool{w.Public.Addr(): true, w.Public.Addr().Next(): false} {
		message := tooLarge(to)
		if after, priority := pass(t, s.programs[bpf.EthernetHeader].in, message, 7); bytes.Equal(after, message) == want || priority == 7 == want {
			t.Errorf("a message to %v that a packet was too large: priority %#x\n%x", to, priority, after)
		}
	}
	for before, want := range map[uint32]uint32{untracked: 0, 7: 7} {
		if after, priority := pass(t, s.programs[bpf.EthernetHeader].out, whole, before); !bytes.Equal(after, whole) || priority != want {
			t.Errorf("a packet of another connection leaves with priority %#x\n%x", priority, after)
		}
	}
}

// A device that comes later is one of the switch's too, as soon as a connection moves.
func TestNewDevice(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewWorld(t, kindOf(t), false)
	nstest.Link(t, nstest.End{In: w.Gateway, Device: "late"}, nstest.End{In: w.Tenant, Device: "late"})
	near, far := w.Moved()
	w.Talk(near, far)
	w.Gateway.Do(t, func() error {
		late, err := netlink.LinkByName("late")
		if err != nil {
			return err
		}
		for name, hook := range map[string]bpf.Hook{FilterIn: bpf.In, FilterOut: bpf.Out} {
			if !(&bpf.Filter{Index: late.Attrs().Index, Hook: hook, Name: name}).Attached() {
				t.Errorf("%s is not at the new device", name)
			}
		}
		return nil
	})
}

// A full switch refuses a connection and leads those that it has.
func TestFull(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	o := Options{Pins: pins(t), Most: 1}
	w := leadtest.NewWorld(t, leadtest.Kind{New: func() (leadtest.Switch, error) { return New(o) }, Has: has}, false)
	near, far := w.Moved()
	w.Gateway.Do(t, func() error {
		other := netip.AddrPortFrom(w.At.Addr(), w.At.Port()+1)
		err := w.To.Lead(other, w.Public, w.Inside)
		if !errors.Is(err, unix.E2BIG) || !strings.Contains(err.Error(), "1 connections, and no more") {
			t.Errorf("the second connection: %v", err)
		}
		s := w.To.(*Switch)
		if err := s.back.Delete(keyOf(w.Inside, w.At)); err != nil {
			return err
		}
		if err := w.To.Lead(other, w.Public, w.Inside); !errors.Is(err, unix.E2BIG) {
			t.Errorf("the second connection, one way of which has room: %v", err)
		}
		if _, err := get(s.back, keyOf(w.Inside, other)); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("half an entry stays: %v", err)
		}
		return w.To.Lead(w.At, w.Public, w.Inside)
	})
	w.Talk(near, far)
}

// Maps that another version left are replaced.
func TestOtherVersion(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	in := nstest.New(t)
	o := Options{Pins: pins(t)}
	in.Do(t, func() error {
		if err := nstest.Set("ipv4/ip_forward", "1"); err != nil {
			return err
		}
		if err := Check(o); err != nil {
			t.Errorf("a switch would not work: %v", err)
		}
		if _, err := os.Stat(o.Pins); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the check made something: %v", err)
		}
		dir, err := directory(o.Pins)
		if err != nil {
			return err
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err == nil {
			err = errors.Join(m.Pin(filepath.Join(dir, leadMapHeddleTo)), m.Close())
		}
		if err != nil {
			return err
		}
		s, err := New(o)
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// Without a BPF file system a switch says how to get one.
func TestNoFileSystem(t *testing.T) {
	in := nstest.New(t)
	in.Do(t, func() error {
		if err := nstest.Set("ipv4/ip_forward", "1"); err != nil {
			return err
		}
		for _, at := range []string{t.TempDir(), "/nonexistent"} {
			o := Options{Pins: filepath.Join(at, "heddle")}
			_, err := New(o)
			for _, err := range []error{err, Check(o)} {
				if !strings.Contains(errhint.Of(err), "mount -t bpf bpf "+at) {
					t.Errorf("%s: %v; %s", at, err, errhint.Of(err))
				}
			}
		}
		return nil
	})
}
