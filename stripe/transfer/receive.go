package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"heddle/path"
)

// ReceiveOptions configure [Receive].
type ReceiveOptions struct {
	Into      string         `flag:"into" help:"the <DIR> that files are received into" complete:"dir"` // it exists
	Overwrite bool           `flag:"overwrite" help:"replace a file of the same name that has another content"`
	Hidden    bool           `flag:"hidden" help:"take names that begin with a dot"` // they may be settings of programs
	MaxBytes  int64          `flag:"max-bytes" help:"take no more than so many bytes in one transfer; 0 is what there is room for"`
	Progress  func(Progress) // called at each step; must not block; may be nil
	// From identifies the sender, as by its key. A newer transfer of the same sender takes over the files of an older one with
	// the same Parts.
	From  string
	Parts *Parts // shared by all transfers into one directory; nil if there is only one
}

// farewell is how long a receiver that gives up waits for the sender to close.
const farewell = 5 * time.Second

type receiver struct {
	conn     net.Conn
	in       reader
	store    store
	turn     *turn
	options  ReceiveOptions
	report   Report
	progress progress
}

// Receive takes offered files until the sender closes the connection. It closes the connection if ctx ends. An interrupted
// file is left as NAME.part. The report is also valid if Receive fails.
func Receive(ctx context.Context, conn net.Conn, o ReceiveOptions) (Report, error) {
	root, err := os.OpenRoot(o.Into)
	if err != nil {
		return Report{}, &path.Error{What: "receive into " + o.Into, Why: cause(err), Hint: "name a directory that is there and that you may write to"}
	}
	defer root.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	parts := cmp.Or(o.Parts, &Parts{})
	turn := parts.begin(ctx, o.From)
	defer turn.end(nil)
	defer context.AfterFunc(turn.over, func() {
		if context.Cause(turn.over) == ErrTakenOver {
			_ = conn.SetDeadline(time.Unix(1, 0)) // nothing waits for the sender any more
		}
	})()
	r := &receiver{conn: conn, in: reader{from: conn}, turn: turn, options: o, progress: progress{tell: o.Progress}, store: store{root: root, parts: parts, overwrite: o.Overwrite, hidden: o.Hidden}}
	for {
		err := r.batch()
		_, broke := errors.AsType[*diskError](err)
		switch {
		case errors.Is(err, io.EOF):
			return r.report, nil
		case ctx.Err() != nil:
			return r.report, ctx.Err()
		case context.Cause(turn.over) == ErrTakenOver:
			return r.report, r.giveUp(ErrTakenOver)
		case broke:
			return r.report, r.giveUp(err)
		case err != nil:
			return r.report, err
		}
	}
}

// batch handles one offer. It returns io.EOF if none came.
func (r *receiver) batch() error {
	var o offer
	if err := r.in.expect(kindOffer, &o); err != nil {
		return err
	}
	if err := r.check(o); err != nil {
		return r.giveUp(err)
	}
	a, parts := r.answer(o)
	defer func() {
		for _, p := range parts {
			if p != nil {
				p.close()
			}
		}
	}()
	if err := write(r.conn, kindAnswer, a); err != nil {
		return err
	}
	if a.holds() {
		if err := r.compare(o, &a, parts); err != nil {
			return err
		}
	}
	if o.DryRun {
		return nil
	}
	var done results
	for i, f := range o.Files {
		one := Result{Name: f.Name, Size: f.Size}
		var err error
		if a.Files[i].untakable() {
			one.State, one.Why = StateRefused, a.Files[i].Refused
		} else {
			err = r.file(f, a.Files[i], parts[i], &one)
		}
		if parts[i] != nil {
			if err != nil && one.State == "" {
				one.State, one.Why = StateFailed, fmt.Sprintf("broken off: %d of %d bytes are kept in %s%s", parts[i].size, f.Size, f.Name, PartSuffix)
			}
			parts[i].close()
			parts[i] = nil
		}
		if one.State != "" {
			r.report.Files = append(r.report.Files, one)
		}
		if err != nil {
			return noEOF(err)
		}
		done.Files = append(done.Files, one)
	}
	return write(r.conn, kindResults, done)
}

// diskError is a failure to write received data, which ends a transfer.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// giveUp tells the sender and waits up to farewell for it to close. No part is held meanwhile.
func (r *receiver) giveUp(err error) error {
	_ = r.conn.SetDeadline(time.Now().Add(farewell))
	if write(r.conn, kindStopped, stopped{err.Error()}) == nil {
		_, _ = io.Copy(io.Discard, r.conn)
	}
	return err
}

func (r *receiver) check(o offer) error {
	if o.Version != version {
		return fmt.Errorf("it speaks version %d of file transfer, and the other side speaks %d", version, o.Version)
	}
	if len(o.Files) == 0 || len(o.Files) > maxBatch {
		return fmt.Errorf("%w: an offer of %d files", ErrNotSpoken, len(o.Files))
	}
	seen := map[string]bool{}
	for _, f := range o.Files {
		if f.Size < 0 || seen[f.Name] {
			return fmt.Errorf("%w: an offer that cannot be", ErrNotSpoken)
		}
		seen[f.Name] = true
	}
	return nil
}

// answer returns what is present of each file, and the open, locked parts.
func (r *receiver) answer(o offer) (answer, []*part) {
	var a answer
	parts := make([]*part, len(o.Files))
	room, err := r.store.room()
	for i, f := range o.Files {
		var one answered
		switch why := CheckName(f.Name, r.options.Hidden); {
		case why != "":
			one.Refused = why
		case err != nil:
			one.Refused = "the receiver cannot tell how much room it has: " + err.Error()
		default:
			one, parts[i] = r.look(f, &room, o.DryRun)
		}
		a.Files = append(a.Files, one)
	}
	return a, parts
}

// compare reads the hashes of what is held, and says what of it is the same.
func (r *receiver) compare(o offer, a *answer, parts []*part) error {
	var shown proof
	if err := r.in.expect(kindProof, &shown); err != nil {
		return noEOF(err)
	}
	if len(shown.Files) != len(a.Files) {
		return fmt.Errorf("%w: hashes of %d files, and %d were offered", ErrNotSpoken, len(shown.Files), len(a.Files))
	}
	for i := range a.Files {
		one := &a.Files[i]
		if len(shown.Files[i]) != len(one.Held) {
			return fmt.Errorf("%w: %d hashes of a file that is held %d times", ErrNotSpoken, len(shown.Files[i]), len(one.Held))
		}
		var same []held
		for j, h := range one.Held {
			h.sum = shown.Files[i][j]
			if !h.Whole && parts[i].digest() == h.sum || h.Whole && r.store.is(o.Files[i].Name, h) {
				same = append(same, h)
			}
		}
		one.Held = same
	}
	return write(r.conn, kindAnswer, *a)
}

// look returns what is present of one file and opens its part. room is the space left for it and the files after it.
func (r *receiver) look(f File, room *int64, dryRun bool) (one answered, p *part) {
	leave := func() {}
	refuse := func(why string) (answered, *part) {
		one.Refused = why
		if p != nil {
			p.close()
		} else {
			leave()
		}
		return one, nil
	}
	if !dryRun {
		var err error
		if leave, err = r.turn.take(f.Name); err != nil {
			return refuse(err.Error())
		}
	}
	info, err := r.store.existing(f.Name)
	if err != nil {
		return refuse(err.Error())
	}
	if info != nil && info.Size() == f.Size {
		one.Held = append(one.Held, held{Bytes: f.Size, Whole: true})
	}
	if info != nil && !r.options.Overwrite {
		return refuse("a file of its name with another content is there")
	}
	if r.options.MaxBytes > 0 && f.Size > r.options.MaxBytes-r.progress.All {
		return refuse(fmt.Sprintf("the receiver takes no more than %d bytes at a time", r.options.MaxBytes))
	}
	if p, err = r.store.open(f.Name, !dryRun); err != nil {
		return refuse(err.Error())
	}
	if p != nil {
		p.leave = leave
	}
	need, begun := f.Size, p != nil && p.size > 0 && p.size <= f.Size
	if begun {
		need -= p.size
	}
	if need > *room {
		return refuse(fmt.Sprintf("there is no room for it: %d bytes are needed, %d are left", need, *room))
	}
	if begun {
		one.Held = append(one.Held, held{Bytes: p.size})
	}
	*room -= need
	r.progress.All += f.Size
	return one, p
}

// file receives one file and sets one. It fails only if the connection or the disk fails.
func (r *receiver) file(f File, a answered, p *part, one *Result) error {
	var b begin
	if err := r.in.expect(kindBegin, &b); err != nil {
		return err
	}
	switch {
	case b.Failed != "":
		one.State, one.Why = StateFailed, printable(b.Failed)
	case b.There:
		for _, h := range a.Held {
			if h.Whole {
				one.State, one.SHA256 = StateThere, h.sum.String()
			}
		}
		if one.State == "" {
			return fmt.Errorf("%w: it takes a file for one that is there", ErrNotSpoken)
		}
	case p == nil:
		one.State, one.Why = StateRefused, a.Refused
	default:
		return r.data(f, b.From, p, one)
	}
	if p != nil {
		r.progress.All -= f.Size
	}
	return nil
}

// data receives a file's content after its begin message.
func (r *receiver) data(f File, from int64, p *part, one *Result) error {
	if from == 0 {
		if err := p.restart(); err != nil {
			return &diskError{err}
		}
	}
	if from != p.size {
		return fmt.Errorf("%w: it would begin at byte %d, where the part ends at %d", ErrNotSpoken, from, p.size)
	}
	one.Resumed = from
	e, err := r.content(f, p)
	if err != nil {
		return err
	}
	r.settle(f, e, p, one)
	r.progress.AllDone += f.Size
	return nil
}

// content writes data until the sender sends the ending.
func (r *receiver) content(f File, p *part) (e ending, err error) {
	for {
		r.progress.at(f, p.size)
		got, err := r.in.read()
		if err != nil {
			return e, err
		}
		if got.kind != kindData {
			err := got.decode(kindEnding, &e)
			return e, err
		}
		if int64(len(got.payload)) > f.Size-p.size {
			return e, fmt.Errorf("%w: more data than the file was to have", ErrNotSpoken)
		}
		if err := p.write(got.payload); err != nil {
			return e, &diskError{errors.New("it cannot be written: " + cause(err))}
		}
		r.report.Bytes += int64(len(got.payload))
	}
}

// settle compares hashes and gives the file its name.
func (r *receiver) settle(f File, e ending, p *part, one *Result) {
	one.State = StateFailed
	switch d := p.digest(); {
	case e.Failed != "":
		one.Why = printable(e.Failed)
	case p.size != f.Size || d != e.SHA256:
		_ = p.restart() // so that it is not resumed
		one.Why = "the hash of what arrived is not that of what was sent; the part is removed"
	default:
		if err := p.finish(f.Modified, f.Executable); err != nil {
			one.Why = cause(err)
			return
		}
		one.State, one.SHA256 = StateSent, d.String()
		if one.Resumed > 0 {
			one.State = StateResumed
		}
	}
}
