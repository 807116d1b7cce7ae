package errhint

import (
	"errors"
	"fmt"
	"testing"
)

func TestOf(t *testing.T) {
	inner := &Error{What: "inner", Why: "it failed", Hint: "try again"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("plain"), ""},
		{inner, "try again"},
		{fmt.Errorf("above: %w", inner), "try again"},
		{&Error{What: "outer", Err: inner}, "try again"}, // the outer one has no hint of its own
		{&Error{What: "outer", Hint: "wait", Err: inner}, "wait"},
		{errors.Join(errors.New("plain"), inner), "try again"},
		{&Error{What: "alone"}, ""},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("Of(%v) is %q, not %q", c.err, got, c.want)
		}
	}
}

func TestReason(t *testing.T) {
	cause := errors.New("the cause")
	for _, c := range []struct {
		err  error
		want string
	}{
		{cause, "the cause"},
		{&Error{What: "path a", Why: "it is down"}, "it is down"},
		{&Error{What: "path a", Err: cause}, "the cause"},
		{fmt.Errorf("above: %w", &Error{What: "path a", Why: "it is down", Err: cause}), "it is down: the cause"},
	} {
		if got := Reason(c.err); got != c.want {
			t.Errorf("Reason(%v) is %q, not %q", c.err, got, c.want)
		}
	}
}
