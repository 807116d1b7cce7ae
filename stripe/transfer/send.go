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

// SendOptions say how files are sent.
type SendOptions struct {
	// DryRun asks what the receiver would take, and sends nothing.
	DryRun bool
	// Progress is told of each step; nil for nobody. It must not block.
	Progress func(Progress)
}

type sender struct {
	conn     net.Conn
	heard    chan frame // from the receiver, which speaks between batches, or to give up
	broken   error      // why heard is closed
	options  SendOptions
	report   Report
	progress progress
	buffer   []byte
}

// Send offers files to a receiver and sends what it lacks of them. The connection is the caller's to close, and of no
// other use afterwards; where ctx ends before, Send closes it. Where it fails the receiver keeps what arrived, and the same call over a new
// connection goes on from there. The report says what became of each file; a file that the receiver refuses, or that
// cannot be read, is no failure of the whole.
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

// listen passes on what the receiver says. It ends with the connection, or once nobody asks any more.
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

// decode reads a frame, or says why there are no more if it has no kind.
func (s *sender) decode(f frame, k kind, into any) error {
	if f.kind == 0 {
		return s.broken
	}
	return f.decode(k, into)
}

// reason prefers what the receiver said last over how the connection ended.
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
	var a answer
	if err := s.expect(kindAnswer, &a); err != nil {
		return err
	}
	if len(a.Files) != len(files) {
		return fmt.Errorf("%w: %d answers to %d files", ErrNotSpoken, len(a.Files), len(files))
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

// results reads what became of the files of a batch.
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

// file sends what is missing of one file. It fails where the connection does; in a dry run it says what it would do.
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
	from, there, err := s.match(file, f, a)
	switch {
	case err != nil:
		return failed(err.Error())
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

// match finds what the receiver holds of the file in truth: all of it, or as much as its part has.
func (s *sender) match(file *os.File, f File, a answered) (from int64, there bool, err error) {
	for _, h := range a.Held {
		if h.Bytes < 0 || h.Bytes > f.Size || h.Whole && h.Bytes != f.Size {
			continue
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return 0, false, errors.New("it cannot be read: " + cause(err))
		}
		sum := sha256.New()
		if _, err := io.CopyN(sum, file, h.Bytes); err != nil && !errors.Is(err, io.EOF) {
			return 0, false, errors.New("it cannot be read: " + cause(err))
		}
		switch same := digest(sum.Sum(nil)) == h.SHA256; {
		case same && h.Whole:
			return h.Bytes, true, nil
		case same:
			from = h.Bytes
		}
	}
	return from, false, nil
}

// content sends the file from a byte on, and gives the hash of all of it.
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

// unchanged gives the ending of a file that is as it was when it was looked at.
func (s *sender) unchanged(file *os.File, f File, d digest) (ending, error) {
	if info, err := file.Stat(); err != nil || info.Size() != f.Size || !info.ModTime().Equal(f.Modified) {
		return ending{Failed: "it changed while it was sent"}, nil
	}
	return ending{SHA256: d}, nil
}

// data sends what lies in the buffer, unless the receiver has given up.
func (s *sender) data(end int) error {
	select {
	case f := <-s.heard:
		return s.decode(f, 0, nil)
	default:
	}
	s.report.Bytes += int64(end - headerBytes)
	return writeFrame(s.conn, kindData, s.buffer[:end])
}
