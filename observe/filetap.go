package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"heddle/path"
)

const (
	tapBytes   = 4 << 20               // payload that may wait for the disk; more is dropped and counted
	tapRecords = 1 << 14               // datagrams that may wait
	tapDelay   = 20 * time.Millisecond // how long the writer gathers before it writes
)

// Tap sees each datagram of one path as it leaves or arrives on this machine. It must not keep data.
type Tap interface {
	// Datagram records one UDP payload. out means that it left this machine.
	Datagram(at time.Time, out bool, local, remote netip.AddrPort, data []byte)
}

// FileTap is a [Tap] that writes a pcapng file. The data path makes one copy under a short lock; a goroutine writes. If
// the disk is too slow, datagrams are missing from the capture, never from the path. The file's interface statistics
// and [FileTap.Close]'s error count them.
type FileTap struct {
	file *os.File
	out  *Writer

	mu      sync.Mutex
	filling batch
	dropped uint64
	closed  bool
	failure error // first write error

	some, many chan struct{} // one datagram waits; half of the limit waits
	stop, done chan struct{}
	scratch    []byte
}

// batch holds what waits for the writer: records that point into one arena.
type batch struct {
	records []record
	arena   []byte
}

type record struct {
	at            time.Time
	out           bool
	local, remote netip.AddrPort
	from, to      int // of the arena
}

// NewFileTap creates DIR/NAME.pcapng for a path, readable by its owner only. It creates dir if needed. description is
// free text for the file, such as "home=if:eth0". It is an error if the file exists.
func NewFileTap(dir, name, description string) (*FileTap, error) {
	what := "capture of path " + name
	if name != filepath.Base(name) || name == "." || name == ".." {
		return nil, &path.Error{What: what, Why: fmt.Sprintf("%q is no name for a file", name)}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &path.Error{What: what, Err: err, Hint: "name a directory that you may write to"}
	}
	file, err := os.OpenFile(filepath.Join(dir, name+".pcapng"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, &path.Error{What: what, Err: err,
			Hint: "an earlier capture is never overwritten: name another directory, or move the file away"}
	}
	if err != nil {
		return nil, &path.Error{What: what, Err: err}
	}
	out, err := newWriter(file, pcapgo.NgInterface{LinkType: LinkRaw, Name: name, Description: description,
		Comment: clientWord + clientOutbound + "; seen on the client's machine; IP and UDP headers are written by the tap"})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		file.Close()
		return nil, &path.Error{What: what, Err: err}
	}
	t := &FileTap{file: file, out: out, some: make(chan struct{}, 1), many: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{})}
	go t.run()
	return t, nil
}

// Datagram implements [Tap]. It is safe for concurrent use.
func (t *FileTap) Datagram(at time.Time, out bool, local, remote netip.AddrPort, data []byte) {
	t.mu.Lock()
	b := &t.filling
	if t.closed || t.failure != nil || len(b.records) >= tapRecords || len(b.arena)+len(data) > tapBytes {
		if !t.closed {
			t.dropped++
		}
		t.mu.Unlock()
		return
	}
	from := len(b.arena)
	b.arena = append(b.arena, data...)
	b.records = append(b.records, record{at: at, out: out, local: local, remote: remote, from: from, to: len(b.arena)})
	count, size := len(b.records), len(b.arena)
	t.mu.Unlock()
	if count == 1 {
		notify(t.some)
	}
	if size > tapBytes/2 || count > tapRecords/2 {
		notify(t.many)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes what waits and the number of drops, and closes the file. Its error says what is missing.
func (t *FileTap) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.mu.Unlock()
	close(t.stop)
	<-t.done
	err := errors.Join(t.failure, t.out.Finish(t.dropped), t.file.Close())
	if err == nil && t.dropped == 0 {
		return nil
	}
	return &path.Error{What: "capture " + t.file.Name(), Why: fmt.Sprintf("%d datagrams are missing", t.dropped), Err: err,
		Hint: "capture to a faster disk or to one with more room"}
}

func (t *FileTap) run() {
	defer close(t.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare batch
	for stopped := false; !stopped; {
		select {
		case <-t.some:
		case <-t.stop:
			stopped = true
		}
		if !stopped {
			timer.Reset(tapDelay)
			select {
			case <-timer.C:
			case <-t.many:
			case <-t.stop:
				stopped = true
			}
		}
		spare = t.drain(spare)
	}
}

// drain swaps the filling batch for an empty one and writes it. It returns the written batch for the next swap.
func (t *FileTap) drain(empty batch) batch {
	t.mu.Lock()
	full := t.filling
	t.filling = batch{records: empty.records[:0], arena: empty.arena[:0]}
	t.mu.Unlock()
	err := t.write(full)
	if err == nil {
		return full
	}
	t.mu.Lock()
	first := t.failure == nil
	if first {
		t.failure = err
	}
	t.mu.Unlock()
	if first {
		slog.Warn("the capture stopped: the disk refused it", "file", t.file.Name(), "why", err)
	}
	return full
}

var flagIn, flagOut = pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}},
	pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}}

func (t *FileTap) write(b batch) error {
	for i, r := range b.records {
		flags, from, to := flagIn, r.remote, r.local
		if r.out {
			flags, from, to = flagOut, r.local, r.remote
		}
		t.scratch = appendUDP(t.scratch[:0], from, to, b.arena[r.from:r.to])
		if err := t.out.write(r.at, t.scratch, len(t.scratch), flags); err != nil {
			t.mu.Lock()
			t.dropped += uint64(len(b.records) - i)
			t.mu.Unlock()
			return err
		}
	}
	return t.out.Flush()
}
