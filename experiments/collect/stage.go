package collect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"heddle/lab"
	"heddle/observe"
)

// stage is a world in which visits are made, with a directory for what its servers and visits need.
type stage struct {
	in   *lab.Instance
	work string
	stop context.CancelFunc // ends the servers
}

// raise makes a stage. The servers run under the context that it returns.
func raise(ctx context.Context, plan lab.World) (context.Context, *stage, error) {
	s := &stage{}
	ctx, s.stop = context.WithCancel(ctx)
	var err error
	if s.work, err = os.MkdirTemp("", "heddle-collect-"); err == nil {
		s.in, err = lab.Up(ctx, plan, lab.Options{})
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.end())
	}
	return ctx, s, nil
}

func (s *stage) end() error {
	s.stop()
	var err error
	if s.in != nil {
		err = s.in.Down()
	}
	if s.work != "" {
		err = errors.Join(err, os.RemoveAll(s.work))
	}
	return err
}

// attempt makes a visit by watch, which gets a new directory for captures. A failed load is recorded in the visit; an error means that no
// visits are possible.
func (s *stage) attempt(ctx context.Context, t task, watch func(dir string) (*observe.Session, error)) (Visit, error) {
	out := Visit{Site: t.site.Name, Round: t.round, Defended: t.defended, At: time.Now().UTC().Truncate(time.Millisecond)}
	if err := s.in.ResetLateness(); err != nil {
		return out, err
	}
	dir, err := os.MkdirTemp(s.work, "visit-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	session, err := watch(dir)
	out.Seconds, out.LatenessMS = time.Since(out.At).Seconds(), s.in.Lateness().Mean
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	if err == nil && out.LatenessMS > late {
		err = fmt.Errorf("the emulated links were late by %.2f ms on average", out.LatenessMS)
	}
	if err == nil {
		out.Rows, err = session.TraceRows(t.load)
	}
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	for i := range out.Rows {
		out.Rows[i].Monitored = t.site.Monitored
	}
	return out, nil
}

// captureName is the name of a capture, without its ending.
const captureName = "network"

// atRouter captures at the router of the client's network while load runs.
func (s *stage) atRouter(ctx context.Context, dir string, load func() error) error {
	stop, err := s.in.CaptureAll(ctx, dir, map[string]string{captureName: "isp/client"})
	if err != nil {
		return err
	}
	return errors.Join(load(), stop())
}
