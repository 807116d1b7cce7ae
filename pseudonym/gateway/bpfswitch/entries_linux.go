package bpfswitch

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/pseudonym/gateway/lead"
)

// open takes over the maps of an earlier process, or makes them.
func (s *Switch) open(object *ebpf.CollectionSpec, o Options) error {
	dir, err := directory(o.pins())
	if err != nil {
		return err
	}
	most := cmp.Or(o.Most, lead.Most)
	for name, m := range map[string]**ebpf.Map{leadMapHeddleTo: &s.to, leadMapHeddleBack: &s.back, leadMapHeddleDirect: &s.direct} {
		of := object.Maps[name].Copy()
		of.MaxEntries, of.Pinning = uint32(most), ebpf.PinByName
		*m, err = ebpf.NewMapWithOptions(of, ebpf.MapOptions{PinPath: dir})
		if errors.Is(err, ebpf.ErrMapIncompatible) { // another version's, whose program this one's will replace
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
			*m, err = ebpf.NewMapWithOptions(of, ebpf.MapOptions{PinPath: dir})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasFileSystem fails if a directory of maps cannot be in a BPF file system.
func hasFileSystem(pins string) error {
	var of unix.Statfs_t
	at := filepath.Dir(pins)
	switch err := unix.Statfs(at, &of); {
	case errors.Is(err, unix.ENOENT) || err == nil && of.Type != unix.BPF_FS_MAGIC:
		return &errhint.Error{What: "the switch", Why: "there is no BPF file system at " + at, Hint: "mount -t bpf bpf " + at}
	case err != nil:
		return &os.PathError{Op: "statfs", Path: at, Err: err}
	}
	return nil
}

// directory makes that of the calling thread's network namespace.
func directory(pins string) (string, error) {
	if err := hasFileSystem(pins); err != nil {
		return "", err
	}
	var here unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return "", err
	}
	dir := filepath.Join(pins, fmt.Sprintf("net-%d", here.Ino))
	return dir, os.MkdirAll(dir, 0o700)
}

// keyOf is the source and destination of packets, as the programs load them.
func keyOf(source, destination netip.AddrPort) leadKey {
	port := func(a netip.AddrPort) uint16 {
		return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, a.Port()))
	}
	return leadKey{Source: words(source.Addr()), Target: words(destination.Addr()), Ports: [2]uint16{port(source), port(destination)}}
}

// addressOf is the opposite of words, and of a port in [keyOf].
func addressOf(w [4]uint32, port uint16) netip.AddrPort {
	var b [16]byte
	for i := range w {
		binary.NativeEndian.PutUint32(b[4*i:], w[i])
	}
	return netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port)))
}

func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// put makes an entry that leads to an address. One with the same key is replaced, as the client uses its port again.
func put(m *ebpf.Map, k leadKey, to netip.AddrPort) error {
	return full(m, m.Put(&k, &leadEntry{Last: bpf.Monotonic(), Address: words(to.Addr())}))
}

func full(m *ebpf.Map, err error) error {
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("the switch leads %d connections, and no more: %w", m.MaxEntries(), err)
	}
	return err
}

func get(m *ebpf.Map, k leadKey) (e leadEntry, err error) {
	err = m.Lookup(&k, &e)
	return e, err
}

func gone(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// States of entries, as in switch.c.
const (
	finished = 1 << iota
	answered
	broken
)

func (e *leadEntry) ended() bool {
	return e.State&broken != 0 || e.State&(finished|answered) == finished|answered
}

// sweep removes the entries that are over at a time of the monotonic clock.
func (s *Switch) sweep(now uint64) error {
	old := func(last uint64, lasting time.Duration) bool { return last < now && now-last >= uint64(lasting) }
	err := each(s, s.to, func(k *leadKey, e *leadEntry) error {
		switch {
		case old(e.Last, lead.Idle):
			return gone(s.to.Delete(k))
		case e.ended() && old(e.Last, lead.EndedFor):
			back := leadKey{Source: e.Address, Target: k.Source, Ports: [2]uint16{k.Ports[1], k.Ports[0]}}
			if b, err := get(s.back, back); gone(err) != nil || err == nil && !old(b.Last, lead.EndedFor) {
				return gone(err)
			}
			return errors.Join(gone(s.to.Delete(k)), gone(s.back.Delete(&back)))
		}
		return nil
	})
	err = errors.Join(err, each(s, s.back, func(k *leadKey, e *leadEntry) error {
		if old(e.Last, lead.Idle) {
			return gone(s.back.Delete(k))
		}
		return nil
	}))
	return errors.Join(err, each(s, s.direct, func(k *leadKey, d *leadDirect) error {
		if old(d.Last, lead.Idle) {
			return gone(s.direct.Delete(k))
		}
		return nil
	}))
}

// Each calls f for each connection that is led and has not ended. How those end that are led directly is not known.
func (s *Switch) Each(f func(lead.Connection) error) error {
	now, monotonic := time.Now(), bpf.Monotonic()
	connection := func(k *leadKey, address [4]uint32, last uint64, direct bool) lead.Connection {
		gateway := addressOf(k.Target, k.Ports[1])
		return lead.Connection{Client: addressOf(k.Source, k.Ports[0]), Gateway: gateway, Tenant: netip.AddrPortFrom(addressOf(address, 0).Addr(), gateway.Port()),
			Direct: direct, Last: now.Add(-time.Duration(monotonic - min(last, monotonic)))}
	}
	err := each(s, s.to, func(k *leadKey, e *leadEntry) error {
		if e.ended() {
			return nil
		}
		return f(connection(k, e.Address, e.Last, false))
	})
	if err != nil {
		return err
	}
	return each(s, s.direct, func(k *leadKey, d *leadDirect) error { return f(connection(k, d.Address, d.Last, true)) })
}

// Touch lets the entries of a connection last as if packets came by now, unless some came in the time before that is given. It reports false if the
// switch does not lead the connection to that tenant.
func (s *Switch) Touch(client, gateway, tenant netip.AddrPort, unless time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to, back := keyOf(client, gateway), keyOf(tenant, client)
	if has, err := s.touchDirect(to, tenant, unless); has || err != nil {
		return has, err
	}
	for _, one := range []struct {
		m       *ebpf.Map
		k       *leadKey
		address netip.Addr
	}{{s.to, &to, tenant.Addr()}, {s.back, &back, gateway.Addr()}} {
		e, err := get(one.m, *one.k)
		if err != nil || e.Address != words(one.address) {
			return false, gone(err)
		}
		now := bpf.Monotonic()
		if e.Last+uint64(unless) > now {
			continue
		}
		e.Last = now
		if err := one.m.Update(one.k, &e, ebpf.UpdateExist); err != nil {
			return false, gone(err)
		}
	}
	return true, nil
}

// each calls f for the entries of a map, some thousand at a time, between which others may come.
func each[E any](s *Switch, m *ebpf.Map, f func(*leadKey, *E) error) error {
	keys, entries := make([]leadKey, 4096), make([]E, 4096)
	var at ebpf.MapBatchCursor
	for last := false; !last; {
		some := func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			n, err := m.BatchLookup(&at, keys, entries, nil)
			if last = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !last {
				return err
			}
			for i := range n {
				if err := f(&keys[i], &entries[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if err := some(); err != nil {
			return err
		}
	}
	return nil
}
