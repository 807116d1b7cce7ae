package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

// SendOptions configure [Send].
type SendOptions struct {
	DryRun   bool           // only asks what the receiver would take
	Progress func(Progress) // called at each step; must not block; may be nil
}

type sender struct {
	conn     net.Conn
	heard    chan frame // from the receiver, which speaks between batches or to give up
	broken   error      // why heard is closed
	options  SendOptions
	report   Report
	progress progress
	buffer   []byte
}

// Send offers files to a receiver and sends what it lacks. The caller closes conn and must not use it otherwise; Send closes
// it if ctx ends. After a failure the receiver keeps what arrived, and the same call over a new connection resumes there.
// The report lists every file. A file that is refused or cannot be read does not fail the transfer.
func Send(ctx context.Context, conn net.Conn, files []File, o SendOptions) (Report, error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	over, stop := context.WithCancel(context.Background())
	defer stop()
	s := &sender{conn: conn, heard: make(chan frame, 1), options: o, progress: progress{tell: o.Progress}, buffer: make([]byte, headerBytes+maxData)}
	go s.listen(over)
	for len(files) > 0 {
		n := min(len(files), maxBatch)
		if err := s.batch(files[:n]); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return s.report, err
		}
		files = files[n:]
	}
	return s.report, nil
}

// listen reads frames of the receiver until the connection or over ends.
func (s *sender) listen(over context.Context) {
	defer close(s.heard)
	in := reader{from: s.conn}
	for {
		f, err := in.read()
		if err != nil {
			s.broken = noEOF(err)
			return
		}
		f.payload = slices.Clone(f.payload)
		select {
		case s.heard <- f:
		case <-over.Done():
			return
		}
	}
}

func (s *sender) expect(k kind, into any) error { return s.decode(<-s.heard, k, into) }

// decode decodes a frame, or returns s.broken if it has no kind.
func (s *sender) decode(f frame, k kind, into any) error {
	if f.kind == 0 {
		return s.broken
	}
	return f.decode(k, into)
}

// reason prefers the receiver's last message to the connection's error.
func (s *sender) reason(err error) error {
	const patience = time.Second
	if _, said := errors.AsType[*StoppedError](err); said {
		return err
	}
	select {
	case f := <-s.heard:
		if f.kind != 0 {
			return f.decode(0, nil)
		}
	case <-time.After(patience):
	}
	return err
}

func (s *sender) batch(files []File) error {
	if err := write(s.conn, kindOffer, offer{Version: version, DryRun: s.options.DryRun, Files: files}); err != nil {
		return s.reason(err)
	}
	a, err := s.answer(len(files))
	if err == nil && a.holds() {
		if err = write(s.conn, kindProof, prove(files, a)); err != nil {
			return s.reason(err)
		}
		a, err = s.answer(len(files))
	}
	if err != nil {
		return err
	}
	for i, f := range files {
		if !a.Files[i].untakable() {
			s.progress.All += f.Size
		}
	}
	for i, f := range files {
		one, err := s.file(f, a.Files[i])
		if err != nil {
			return s.reason(err)
		}
		if s.options.DryRun {
			s.report.Files = append(s.report.Files, one)
		}
	}
	if s.options.DryRun {
		return nil
	}
	return s.results(files)
}

// answer reads what the receiver holds of so many files.
func (s *sender) answer(files int) (a answer, err error) {
	if err := s.expect(kindAnswer, &a); err != nil {
		return a, err
	}
	if len(a.Files) != files {
		return a, fmt.Errorf("%w: %d answers to %d files", ErrNotSpoken, len(a.Files), files)
	}
	for _, one := range a.Files {
		if len(one.Held) > 2 {
			return a, fmt.Errorf("%w: it holds one file %d times", ErrNotSpoken, len(one.Held))
		}
	}
	return a, nil
}

func (s *sender) results(files []File) error {
	var r results
	if err := s.expect(kindResults, &r); err != nil {
		return err
	}
	if len(r.Files) != len(files) {
		return fmt.Errorf("%w: %d results of %d files", ErrNotSpoken, len(r.Files), len(files))
	}
	for i, f := range files {
		one := r.Files[i]
		one.Name, one.State, one.SHA256, one.Why = f.Name, printable(one.State), printable(one.SHA256), printable(one.Why)
		s.report.Files = append(s.report.Files, one)
	}
	return nil
}

// file sends what is missing of one file. It fails only if the connection fails. In a dry run it returns what it would do.
func (s *sender) file(f File, a answered) (Result, error) {
	one := Result{Name: f.Name, Size: f.Size, State: StateRefused, Why: printable(a.Refused)}
	if a.untakable() {
		return one, nil
	}
	failed := func(why string) (Result, error) {
		one.State, one.Why = StateFailed, why
		return one, s.begin(begin{Failed: why})
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return failed("it cannot be read: " + cause(err))
	}
	defer file.Close()
	from, there := a.same(f)
	switch {
	case there:
		s.progress.AllDone += f.Size
		one.State, one.Why = StateThere, ""
		return one, s.begin(begin{There: true})
	case a.Refused != "":
		return one, s.begin(begin{})
	}
	one.State, one.Why, one.Resumed = StateWould, "", from
	if err := s.begin(begin{From: from}); err != nil || s.options.DryRun {
		return one, err
	}
	e, err := s.content(file, f, from)
	if err != nil {
		return one, err
	}
	s.progress.AllDone += f.Size
	return one, write(s.conn, kindEnding, e)
}

func (s *sender) begin(b begin) error {
	if s.options.DryRun {
		return nil
	}
	return write(s.conn, kindBegin, b)
}

// same returns what the receiver holds of a file: the whole file, or a part of from bytes.
func (a answered) same(f File) (from int64, there bool) {
	for _, h := range a.Held {
		switch {
		case h.Whole && h.Bytes == f.Size:
			return 0, true
		case !h.Whole && h.Bytes > 0 && h.Bytes <= f.Size:
			from = h.Bytes
		}
	}
	return from, false
}

// prove hashes as much of each file as the receiver says it holds. What cannot be read is like nothing.
func prove(files []File, a answer) (p proof) {
	for i, f := range files {
		sums := make([]digest, len(a.Files[i].Held))
		for j, h := range a.Files[i].Held {
			sums[j] = hashed(f, h.Bytes)
		}
		p.Files = append(p.Files, sums)
	}
	return p
}

// hashed is the hash of the first bytes of a file, or no hash where it does not have them.
func hashed(f File, bytes int64) (d digest) {
	if bytes < 0 || bytes > f.Size {
		return d
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return d
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.CopyN(sum, file, bytes); err != nil {
		return d
	}
	return digest(sum.Sum(nil))
}

// content sends the file from an offset and returns the hash of the whole file.
func (s *sender) content(file *os.File, f File, from int64) (e ending, err error) {
	failed := func(why string) (ending, error) { return ending{Failed: why}, nil }
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return failed("it cannot be read: " + cause(err))
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, file, from); err != nil {
		return failed("it changed while it was sent")
	}
	for done := from; ; {
		s.progress.at(f, done)
		n, err := io.ReadFull(file, s.buffer[headerBytes:headerBytes+min(maxData, f.Size-done)])
		if n > 0 {
			sum.Write(s.buffer[headerBytes : headerBytes+n])
			if err := s.data(headerBytes + n); err != nil {
				return e, err
			}
		}
		done += int64(n)
		switch {
		case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return failed("it cannot be read: " + cause(err))
		case err != nil && done < f.Size:
			return failed("it became shorter while it was sent")
		case done == f.Size:
			s.progress.at(f, done)
			return s.unchanged(file, f, digest(sum.Sum(nil)))
		}
	}
}

// unchanged returns the ending, which is a failure if the file changed since it was listed.
func (s *sender) unchanged(file *os.File, f File, d digest) (ending, error) {
	if info, err := file.Stat(); err != nil || info.Size() != f.Size || !info.ModTime().Equal(f.Modified) {
		return ending{Failed: "it changed while it was sent"}, nil
	}
	return ending{SHA256: d}, nil
}

// data sends the buffer up to end, unless the receiver has given up.
func (s *sender) data(end int) error {
	select {
	case f := <-s.heard:
		return s.decode(f, 0, nil)
	default:
	}
	s.report.Bytes += int64(end - headerBytes)
	return writeFrame(s.conn, kindData, s.buffer[:end])
}
