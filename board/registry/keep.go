package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"heddle/board"
	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/path"
)

// Writer is the part of [board.Client] that [Keep] needs.
type Writer interface {
	Cas(ctx context.Context, template space.Template, tuple space.Tuple, p board.Put) (space.ID, *space.Entry, bool, error)
	Renew(ctx context.Context, id space.ID, lease time.Duration) error
	Remove(ctx context.Context, id space.ID) error
}

// TakenError means that another key has the name.
type TakenError struct {
	Kind, Name string
	By         identity.Key // zero if this device may not read it
}

// Error names the holder.
func (e *TakenError) Error() string {
	if e.By.IsZero() {
		return fmt.Sprintf("%s %s: somebody else is registered by this name", e.Kind, e.Name)
	}
	return fmt.Sprintf("%s %s: %v is registered by this name", e.Kind, e.Name, e.By)
}

// HintText returns what the user can do.
func (*TakenError) HintText() string { return "choose another name, or ask who has it" }

// Lease is the default lease of a registration, which is renewed three times in that time.
const Lease = 10 * time.Minute

// removal limits the request that removes a registration at the end.
const removal = 3 * time.Second

// Register puts a registration, or adopts that of the same key and name. The key must be the writer's. See [TakenError].
func Register(ctx context.Context, w Writer, r Registration, lease time.Duration) (space.ID, error) {
	kind, name, key := r.label()
	tuple, err := r.fields()
	if err != nil {
		return space.ID{}, &path.Error{What: kind + " " + name, Why: err.Error()}
	}
	for {
		id, other, done, err := w.Cas(ctx, named(r), tuple, board.Put{Lease: lease})
		switch {
		case err != nil || done:
			return id, err
		case other == nil:
			return id, &TakenError{Kind: kind, Name: name}
		case other.Author() != key:
			return id, &TakenError{kind, name, other.Author()}
		case slices.Equal(other.Tuple(), tuple):
			if err := w.Renew(ctx, other.ID(), lease); !errors.Is(err, board.ErrNone) {
				return other.ID(), err
			}
		default: // its content has changed
			if err := w.Remove(ctx, other.ID()); err != nil && !errors.Is(err, board.ErrNone) {
				return id, err
			}
		}
	}
}

// Keep registers, renews until ctx ends, and then removes. An invalid registration, a taken name, or a refusal ends it
// earlier; an unreachable board does not.
func Keep(ctx context.Context, w Writer, r Registration, lease time.Duration, log *slog.Logger) error {
	kind, name, _ := r.label()
	var id space.ID
	var have bool
	defer func() {
		if have {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
			defer cancel()
			if err := w.Remove(last, id); err != nil {
				log.Warn("could not deregister; the lease ends by itself", "kind", kind, "name", name, "error", err)
			}
		}
	}()
	for {
		var err error
		if have {
			err = w.Renew(ctx, id, lease)
		}
		if !have || errors.Is(err, board.ErrNone) { // the lease ended while the board was unreachable
			id, err = Register(ctx, w, r, lease)
		}
		have = have || err == nil
		pause := lease / 3
		if err != nil && ctx.Err() == nil {
			if final(err) {
				return err
			}
			log.Warn("could not register", "kind", kind, "name", name, "error", err)
			pause = min(pause, 30*time.Second)
		}
		if netutil.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// final reports whether retrying cannot help.
func final(err error) bool {
	if refused, ok := errors.AsType[*board.Refusal](err); ok {
		return refused.Result.Status != space.Full && refused.Result.Status != space.Quota && refused.Result.Status != space.Clock
	}
	if _, taken := errors.AsType[*TakenError](err); taken {
		return true
	}
	return board.Permanent(err)
}
