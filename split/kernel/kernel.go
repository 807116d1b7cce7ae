// Package kernel splits a session inside the kernel. Programs send straight to the server. A BPF program at each outgoing
// device chooses the path of each packet, sets that path's source address, and sends the packet by that path's device.
// Another BPF program restores the original address in the answers.
//
// Paths are of kinds if and src. Units are times. Counts of packets need [Options.GSOOff], since the kernel hands over a run
// of segments (UDP_SEGMENT) as one packet. One schedule splits all sessions of this machine with the server.
//
// It fails closed. The BPF programs drop packets to the server before Run permits them, with too few healthy paths, and two
// seconds after this process last renewed the permission. With too few paths only single packets leave, which test the silent
// ones. An nftables table drops packets that would leave by a device
// without such a program. After a crash, both stay until [Clean] or the session's next Open. Fragments are dropped, since
// they have no port by which to tell their session.
//
// It needs CAP_NET_ADMIN, CAP_BPF (and CAP_PERFMON on some kernels), Linux 5.12 and nftables. Without these, for other kinds
// of path, for rules, or for programs that use SO_BINDTODEVICE (answers arrive by all devices), use the relay of package
// split.
package kernel

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/internal/journal"
	"heddle/internal/nft"
	"heddle/internal/sysctl"
	"heddle/path"
	"heddle/split/backend"
)

// ErrRefused means that this kernel, or the rights of this process, do not permit the backend.
var ErrRefused = errors.New("the kernel refuses the kernel backend")

// Options configure a session.
type Options struct {
	backend.Options
	GSOOff bool // split runs of segments by a pair of devices; needed for units that are counts of packets

	patience    time.Duration // 0 means usualPatience
	verifyEvery time.Duration // 0 means usualVerify
}

// usualPatience is how long the BPF programs keep sending without this process.
const usualPatience = 2 * time.Second

// maxMembers is the largest number of paths. The program for answers tries them one by one.
const maxMembers = 32

var kinds = journal.Kinds{
	"guard":     func() journal.Change { return &backend.Guard{} },
	"sysctl":    func() journal.Change { return &sysctl.Change{} },
	"qdisc":     func() journal.Change { return &bpf.Clsact{} },
	"filter":    func() journal.Change { return &bpf.Filter{} },
	"segmenter": func() journal.Change { return &segmenter{} },
	"table":     func() journal.Change { return &backend.Table{} },
	"rule":      func() journal.Change { return &backend.Rule{} },
}

const backendName = "kernel"

// Clean undoes the changes that a crash of the session left, and returns a line for each. Until then no packets leave to that
// server; with keepGuard none leave before the next Open. The caller must hold the session's name.
func Clean(dir, session string, keepGuard bool) ([]string, error) {
	return backend.Clean(dir, session, backendName, kinds, keepGuard)
}

// Left is [backend.Left].
func Left(dir, session string) ([]string, error) {
	return backend.Left(dir, session, backendName, kinds)
}

// Backend is one session. Open, Run and Close must be called in one network namespace.
type Backend struct {
	o       Options
	session session
	members *backend.Members
	journal *journal.Journal
	guard   *backend.Guard
	guarded bool // the guard is in place, as its fields say
	left    bool // a crash left a guard
	moved   bool // the server moved: the guard stays

	watch    *path.Watch
	looked   time.Time // last look
	verified time.Time // last look at which everything was in place, or 0 after a reported change
	enough   bool      // packets may leave by the plan

	programs map[programKey]*ebpf.Program
	devices  map[int]*device

	segmenter int              // device that splits runs of segments, or 0
	tables    []*backend.Table // one per member, for IPv6
	routed    []backend.Hop    // the hops in the tables

	mu      sync.Mutex
	planner *planner
	refused uint64 // by earlier guards
	stray   uint64 // by the current guard
	closed  bool
}

type device struct {
	filters []*bpf.Filter
	first   link.Link // nil where the kernel has no tcx
}

// release closes the link early; it ends with this process anyway.
func (d *device) release() error {
	if d.first == nil {
		return nil
	}
	return d.first.Close()
}

// Open prepares the machine. Nothing leaves to the server before [Backend.Run]. Each error is a [path.Error], and wraps
// [ErrRefused] if the kernel does not permit the backend.
func Open(ctx context.Context, o Options) (*Backend, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	members, err := backend.NewMembers(ctx, backendName, o.Options, 0)
	if err != nil {
		return nil, err
	}
	p := &Backend{o: o, members: members, programs: map[programKey]*ebpf.Program{}, devices: map[int]*device{}}
	if err := p.open(ctx); err != nil {
		return nil, errors.Join(err, p.close(p.left))
	}
	return p, nil
}

func (p *Backend) open(ctx context.Context) (err error) {
	o := &p.o
	o.patience, o.verifyEvery = cmp.Or(o.patience, usualPatience), cmp.Or(o.verifyEvery, usualVerify)
	p.session = session{server: p.members.Server, every: o.Schedule.Every, start: bpf.Monotonic(), mark: drawMark()}
	if p.session.maps, err = newMaps(len(o.Via)); err != nil {
		return refused(err)
	}
	if p.planner, err = newPlanner(o.Schedule, len(o.Via), o.patience, p.session.maps.plans); err != nil {
		return err
	}
	if err := p.tryLoad(); err != nil {
		return err
	}
	if p.journal, err = backend.OpenJournal(o.Dir, o.Session, backendName, kinds); err != nil {
		return err
	}
	p.guard = &backend.Guard{Table: nft.Name(backendName, o.Session), Server: p.members.Server}
	p.guard.Forbid(p.members.Others()...)
	if p.left, err = backend.Begin(p.journal, p.guard); err != nil {
		return refused(err)
	}
	if o.Schedule.Every.Packets > 0 {
		if err := p.openSegmenter(); err != nil {
			return refused(err)
		}
	}
	if p.members.Server.Addr().Is6() {
		if err := p.makeTables(); err != nil {
			return err
		}
	}
	if p.watch, err = path.NewWatch(); err != nil {
		return err
	}
	p.members.Follow(ctx)
	return p.arrange()
}

func (o Options) check() error {
	switch {
	case len(o.Via) > maxMembers:
		return &path.Error{What: "backend kernel", Why: fmt.Sprintf("%d paths are more than %d", len(o.Via), maxMembers), Hint: "use --backend relay"}
	case o.Schedule.Every.Packets > 0 && !o.GSOOff:
		return &path.Error{What: "backend kernel, every " + o.Schedule.Every.String(),
			Why:  "programs may hand the kernel runs of segments (GSO), which pass as one packet and would not be counted",
			Hint: "use a time, such as --every 100ms; or --gso-off, which takes runs apart first; or --backend relay, which counts exactly"}
	}
	return nil
}

// tryLoad loads the programs for Ethernet, so that a kernel that refuses them does so before any change.
func (p *Backend) tryLoad() error {
	if _, err := p.program(bpf.EthernetHeader, bpf.In); err != nil {
		return refused(err)
	}
	decide, err := p.session.outbound(bpf.EthernetHeader, 0)
	if err == nil {
		err = decide.Close()
	}
	return refused(err)
}

// drawMark returns a random mark. Another session of this machine has it with probability 2^-23.
func drawMark() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return (binary.NativeEndian.Uint32(b[:]) | 1<<31) & markMask
}

// refused returns ErrRefused with the kernel's error and a hint.
func refused(err error) error {
	if err == nil {
		return nil
	}
	why, hint := "the kernel does not take the program", "use --backend relay, which needs nothing of the kernel"
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES) && !isVerifier(err):
		why, hint = "this process may not load or attach BPF programs", errhint.Rights("CAP_NET_ADMIN and CAP_BPF")+", or use --backend relay, which needs neither"
	case errors.Is(err, ebpf.ErrNotSupported):
		why = "the kernel has no BPF programs at tc"
	}
	return &path.Error{What: "backend kernel", Why: why, Hint: hint, Err: errors.Join(ErrRefused, err)}
}

func isVerifier(err error) bool {
	_, ok := errors.AsType[*ebpf.VerifierError](err)
	return ok
}

func (p *Backend) openSegmenter() error {
	var id [3]byte
	rand.Read(id[:])
	s := &segmenter{First: "heddle" + hex.EncodeToString(id[:]) + "a", Second: "heddle" + hex.EncodeToString(id[:]) + "b"}
	if err := p.journal.Do(s); err != nil {
		return err
	}
	first, err := s.index(s.First)
	second, secondErr := s.index(s.Second)
	if err := errors.Join(err, secondErr); err != nil {
		return err
	}
	program, err := p.session.outbound(bpf.EthernetHeader, 0)
	if err != nil {
		return err
	}
	p.programs[programKey{hook: bpf.In, segments: true}] = program
	p.segmenter = first
	if err := p.journal.Do(&bpf.Clsact{Device: s.Second, Index: second}); err != nil {
		return err
	}
	return p.journal.Do(&bpf.Filter{Device: s.Second, Index: second, Hook: bpf.In, Name: p.filterName(), Program: program})
}

func (p *Backend) filterName() string { return "heddle-" + p.o.Session }

// programKey identifies a program of the session.
type programKey struct {
	header   int // length of the link header in bytes
	hook     bpf.Hook
	segments bool // it decides for packets from the segmenter
}

// program returns the program for a hook of devices with this link header length. It loads each program once.
func (p *Backend) program(header int, hook bpf.Hook) (program *ebpf.Program, err error) {
	key := programKey{header: header, hook: hook}
	if program = p.programs[key]; program != nil {
		return program, nil
	}
	if hook == bpf.In {
		program, err = p.session.inbound(header)
	} else {
		program, err = p.session.outbound(header, p.segmenter)
	}
	if err == nil {
		p.programs[key] = program
	}
	return program, err
}

// Close stops the session and undoes its changes. After it, programs send to the server unsplit, except if Run ended with
// [backend.ErrMoved]: then the guard stays, and nothing leaves.
func (p *Backend) Close() error { return p.close(p.moved) }

func (p *Backend) close(keepGuard bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	if m := p.session.maps; m != nil && m.state != nil {
		m.permit(0)
	}
	if p.journal != nil {
		err = backend.End(p.journal, p.guard, keepGuard)
	}
	for _, d := range p.devices {
		err = errors.Join(err, d.release())
	}
	for _, program := range p.programs {
		program.Close()
	}
	if p.session.maps != nil {
		p.session.maps.close()
	}
	return errors.Join(err, p.watch.Close(), p.members.Close())
}
