package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
	"heddle/path/resolve"
)

// lookAgain is the time between lookups of a name.
const lookAgain = time.Minute

// silence is how long the session continues without hearing from an address that the name no longer has.
const silence = 10 * time.Second

// maxOthers limits the addresses kept for a name that changes often.
const maxOthers = resolve.MaxKnown

// ErrMoved means that the server has another address now. The guard stays.
var ErrMoved = errors.New("the server moved")

// FollowName looks the server's name up repeatedly until ctx ends. [Members.Moved] receives the results.
func (s *Members) FollowName(ctx context.Context) {
	if s.name != nil {
		s.name.Follow(ctx, cmp.Or(s.o.LookAgain, lookAgain))
	}
}

// Others returns the other addresses that the server's name has or had. A program may send to them unsplit.
func (s *Members) Others() []netip.AddrPort {
	if s.name == nil {
		return nil
	}
	return slices.DeleteFunc(s.name.Known(), func(a netip.AddrPort) bool { return a == s.Server })
}

func (s *Members) warnOthers() {
	if len(s.Others()) > 0 {
		s.Warn("%s has more than one address; what is sent to another than %s does not leave, since it would not be split", s.o.To, s.Server)
	}
}

// Moved reports whether [Members.Others] has grown. It fails with [ErrMoved] if the name no longer has the server's address
// and nothing is heard from there. It does not block.
func (s *Members) Moved(now time.Time) (more bool, err error) {
	if s.name == nil {
		return false, nil
	}
	select {
	case found := <-s.name.Found():
		if found.Err != nil {
			s.Warn("the server's name cannot be looked up again, so it would not be noticed if the server moved: %s", errhint.Reason(found.Err))
		} else if more = s.take(found.Addresses); more {
			s.warnOthers()
		}
	default:
	}
	if s.listed || now.Sub(s.group.LastHeard()) < silence {
		return more, nil
	}
	return more, &path.Error{What: "server " + s.o.To, Err: ErrMoved,
		Why:  fmt.Sprintf("its address is %v now, no longer %v, where nothing is heard from; nothing leaves to either", s.now, s.Server),
		Hint: fmt.Sprintf("start this again, and then the program that sends there; or `heddle down %s` to let it send unsplit", s.o.Session)}
}
