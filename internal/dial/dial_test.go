package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// silent never answers.
func silent[C any](ctx context.Context, _ C) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// No address uses up the time of those after it, and none gets less than two seconds while there are as many.
func TestFirstSharesTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration
		count int
		want  []time.Duration // when each attempt began
	}{
		"equal":    {30 * time.Second, 3, []time.Duration{0, 10 * time.Second, 20 * time.Second}},
		"at least": {5 * time.Second, 4, []time.Duration{0, 2 * time.Second, 4 * time.Second}},
		"alone":    {time.Second, 1, []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				begin := time.Now()
				var at []time.Duration
				_, err := First(ctx, make([]int, c.count), func(ctx context.Context, i int) (string, error) {
					at = append(at, time.Since(begin))
					return silent(ctx, i)
				})
				if !slices.Equal(at, c.want) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != c.limit {
					t.Errorf("%v, over after %v: %v", at, time.Since(begin), err)
				}
			})
		})
	}
}

func TestFirst(t *testing.T) {
	refused := errors.New("refused")
	tried := 0
	single := func(_ context.Context, a string) (string, error) {
		if tried++; a == "open" {
			return "connected", nil
		}
		return "", refused
	}
	if got, err := First(t.Context(), []string{"shut", "open", "open"}, single); got != "connected" || err != nil || tried != 2 {
		t.Errorf("%q, %v after %d", got, err, tried)
	}
	if _, err := First(t.Context(), []string{"shut", "shut"}, single); !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, err := First(t.Context(), nil, single); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tried = 0
	_, err := First(ctx, []string{"shut", "open"}, func(ctx context.Context, a string) (string, error) {
		cancel()
		return single(ctx, a)
	})
	if !errors.Is(err, refused) || tried != 1 {
		t.Errorf("after the end: %v, %d tried", err, tried)
	}
}

func TestDialer(t *testing.T) {
	addr := netip.MustParseAddr
	var tried []netip.AddrPort
	d := Dialer[string]{
		Single: func(_ context.Context, to netip.AddrPort) (string, error) {
			tried = append(tried, to)
			return "", errors.New("refused")
		},
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			if name != "host.example" {
				return nil, &net.DNSError{Err: "no such host", Name: name}
			}
			return []netip.Addr{addr("10.0.0.1"), addr("::ffff:192.0.2.1"), addr("192.0.2.2"), addr("2001:db8::1")}, nil
		},
		Allowed: func(to netip.AddrPort) bool { return !to.Addr().IsPrivate() },
		Most:    2,
	}
	for _, c := range []struct {
		host string
		want []string
	}{
		{"host.example", []string{"192.0.2.1:80", "192.0.2.2:80"}},
		{"192.0.2.9", []string{"192.0.2.9:80"}},
		{"::ffff:192.0.2.9", []string{"192.0.2.9:80"}},
		{"10.0.0.1", nil},
		{"::ffff:10.0.0.1", nil}, // the rule is asked about the address that is dialled
		{"other.example", nil},
	} {
		tried = nil
		_, err := d.Dial(t.Context(), c.host, 80)
		var got []string
		for _, at := range tried {
			got = append(got, at.String())
		}
		if !slices.Equal(got, c.want) || err == nil {
			t.Errorf("%s: dialled %v, %v", c.host, got, err)
		}
		if name := (*net.DNSError)(nil); errors.As(err, &name) != (c.host == "other.example") || c.want == nil && name == nil && !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", c.host, err)
		}
	}
	d.Lookup = nil
	if _, err := d.Dial(t.Context(), "localhost", 80); err == nil || len(tried) == 0 {
		t.Errorf("localhost by this machine's resolver: %v, %v", tried, err)
	}
}
