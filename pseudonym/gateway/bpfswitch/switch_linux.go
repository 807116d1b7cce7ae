package bpfswitch

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/internal/journal"
	"heddle/internal/nft"
	"heddle/path"
	"heddle/pseudonym/gateway/lead"
)

// Switch is that of the network namespace in which it was made. It is safe for concurrent use.
type Switch struct {
	routed   map[bool]bool    // by whether it is IPv6
	programs map[int]programs // by the length of a device's link header
	to       *ebpf.Map
	back     *ebpf.Map
	direct   *ebpf.Map

	mu    sync.Mutex
	watch *path.Watch
	hops  *hops

	end  chan struct{} // the sweeper's
	done sync.WaitGroup
}

// programs are those of a device.
type programs struct{ in, out *ebpf.Program }

// untracked is the priority of packets that are led, until they leave. It is none of traffic control's classes.
const untracked = 0x6c656164

// New attaches the programs to all devices with IP packets, in the place of those of an earlier process, whose entries it takes over.
func New(o Options) (*Switch, error) {
	families, err := lead.Families()
	if err != nil {
		return nil, err
	}
	s := &Switch{routed: map[bool]bool{}, programs: map[int]programs{}, end: make(chan struct{})}
	if err := s.begin(o, families); err != nil {
		return nil, errors.Join(refused(err), s.Close())
	}
	s.done.Go(s.sweepAlways)
	return s, nil
}

func (s *Switch) begin(o Options, families []lead.Family) (err error) {
	if s.watch, err = path.NewWatch(); err != nil {
		return err
	}
	if s.hops, err = newHops(); err != nil {
		return err
	}
	object, err := loadLead()
	if err != nil {
		return err
	}
	if err := s.open(object, o); err != nil {
		return err
	}
	constants := map[string]any{leadVarIdle: uint64(lead.Idle), leadVarUntracked: uint32(untracked)}
	for _, f := range families {
		s.routed[f.V6] = true
		constants[map[bool]string{false: leadVarTtl4, true: leadVarTtl6}[f.V6]] = f.TTL
	}
	for _, header := range []int{bpf.EthernetHeader, 0} {
		constants[leadVarHeader] = uint32(header)
		if s.programs[header], err = s.load(object, constants); err != nil {
			return err
		}
	}
	return s.attach(true)
}

func (s *Switch) load(object *ebpf.CollectionSpec, constants map[string]any) (p programs, err error) {
	maps := map[string]*ebpf.Map{leadMapHeddleTo: s.to, leadMapHeddleBack: s.back, leadMapHeddleDirect: s.direct}
	if p.in, err = bpf.Load(object, leadProgHeddleLeadIn, constants, maps); err == nil {
		p.out, err = bpf.Load(object, leadProgHeddleLeadOut, constants, maps)
	}
	return p, err
}

// Check reports why New would fail, or nil. It changes nothing.
func Check(o Options) error {
	if _, err := lead.Families(); err != nil {
		return err
	}
	pins := o.pins()
	if err := hasFileSystem(pins); err != nil {
		return err
	}
	if unix.Access(pins, unix.F_OK) != nil { // New makes it
		pins = filepath.Dir(pins)
	}
	if err := unix.Access(pins, unix.W_OK); err != nil {
		return refused(&os.PathError{Op: "access", Path: pins, Err: err})
	}
	object, err := loadLead()
	if err != nil {
		return err
	}
	p, err := bpf.Load(object, leadProgHeddleLeadIn, nil, nil)
	if err != nil {
		return refused(err)
	}
	return p.Close()
}

func refused(err error) error {
	_, rejected := errors.AsType[*ebpf.VerifierError](err) // by a kernel that is too old, with EACCES too
	if !rejected && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		return &errhint.Error{What: "the switch", Why: "this process may not load BPF programs", Hint: errhint.Rights("CAP_BPF and CAP_NET_ADMIN") + ", and give it " + Pins, Err: err}
	}
	return err
}

// attach attaches the programs where they are missing, or everywhere.
func (s *Switch) attach(everywhere bool) error {
	if err := nft.Change(keepUntracked); err != nil {
		return err
	}
	devices, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, d := range devices {
		at := d.Attrs()
		header, known := bpf.HeaderOf(d)
		if !known { // such as the loopback device, behind which is no other machine
			continue
		}
		p := s.programs[header]
		for _, f := range []*bpf.Filter{{Hook: bpf.In, Name: FilterIn, Program: p.in}, {Hook: bpf.Out, Name: FilterOut, Program: p.out}} {
			f.Device, f.Index = at.Name, at.Index
			if !everywhere && f.Attached() {
				continue
			}
			if err := f.Replace(); journal.IgnoreGone(err) != nil {
				return fmt.Errorf("device %s: %w", at.Name, err)
			}
		}
	}
	return nil
}

// keepUntracked adds the rule of nftables.
func keepUntracked(conn *nftables.Conn) error {
	table, priority := nft.Inet(Table), *nftables.ChainPriorityRaw-1
	conn.AddTable(table)
	chain := conn.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: &priority})
	conn.FlushChain(chain)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: nft.Join(nft.Priority(untracked), []expr.Any{&expr.Notrack{}})})
	return nil
}

// Lead leads the packets of a connection between client and gateway to its tenant from then on, which has it with the same port.
func (s *Switch) Lead(client, gateway, tenant netip.AddrPort) error {
	if err := lead.Check(client, gateway, tenant); err != nil {
		return err
	}
	if !s.routed[client.Addr().Is6()] {
		return lead.NotRouted(client)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.follow(); err != nil {
		return err
	}
	to, back := keyOf(client, gateway), keyOf(tenant, client)
	if err := gone(s.direct.Delete(&to)); err != nil {
		return err
	}
	if err := put(s.back, back, gateway); err != nil {
		return err
	}
	if err := put(s.to, to, tenant); err != nil {
		return errors.Join(err, gone(s.back.Delete(back)))
	}
	return nil
}

// follow takes in changes of the machine. s.mu is held.
func (s *Switch) follow() error {
	if !s.watch.Changed() { // a device may be new, and somebody may have removed a filter
		return nil
	}
	s.hops.forget()
	return s.attach(false)
}

// Close lets go of programs and entries, which go on.
func (s *Switch) Close() error {
	close(s.end)
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.to.Close(), s.back.Close(), s.direct.Close(), s.watch.Close())
	if s.hops != nil {
		s.hops.kernel.Close()
	}
	for _, p := range s.programs {
		err = errors.Join(err, p.in.Close(), p.out.Close())
	}
	return err
}

// sweepEvery is how often the switch looks for entries that are over.
const sweepEvery = time.Minute

func (s *Switch) sweepAlways() {
	for tick := time.NewTicker(sweepEvery); ; {
		select {
		case <-tick.C:
			_ = s.sweep(bpf.Monotonic()) // the programs use no entry that is over, and the next sweep may get further
		case <-s.end:
			tick.Stop()
			return
		}
	}
}
