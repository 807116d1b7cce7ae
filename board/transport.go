package board

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/path"
)

// remote is one replica as a client sees it.
type remote struct {
	Replica
	http *http.Client
}

// idleAtClient is shorter than the server's limit, so that a request rarely uses a connection that is being closed.
const idleAtClient = 20 * time.Second

func newRemote(id identity.Identity, r Replica, dial func(context.Context, string, string) (net.Conn, error)) (*remote, error) {
	config, err := id.Client(r.Key, Protocol)
	if err != nil {
		return nil, err
	}
	return &remote{Replica: r, http: &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			plain, err := dial(ctx, network, address)
			if err != nil {
				return nil, &unsent{err}
			}
			c := tls.Client(plain, config)
			if err := c.HandshakeContext(ctx); err != nil {
				_ = plain.Close()
				return nil, &unsent{err}
			}
			return c, nil
		},
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     idleAtClient,
		TLSHandshakeTimeout: slowestRequest,
	}}}, nil
}

// ask makes one request. Its error is a [path.Error] that names the replica; permanent means that retrying cannot help.
func (r *remote) ask(ctx context.Context, method, where string, wait time.Duration, body []byte, limit int64) ([]byte, error) {
	target := url.URL{Scheme: "https", Host: r.Address, Path: where}
	if wait > 0 {
		target.RawQuery = url.Values{"wait": {wait.String()}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, r.failure(err)
	}
	answer, err := r.http.Do(request)
	if err != nil {
		return nil, r.failure(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, r.failure(err)
	case int64(len(raw)) > limit:
		return nil, &permanent{r.error("sends an answer that is too large", nil, "ask its owner")}
	case answer.StatusCode == http.StatusForbidden:
		return nil, &permanent{r.error("does not let this device in", nil, "its owner lets in who is in the board's file of members")}
	case answer.StatusCode == http.StatusTooManyRequests:
		return nil, &unsent{r.error(told(raw), nil, "try again in a moment")}
	case answer.StatusCode >= 500:
		return nil, r.error(told(raw), nil, "try again in a moment")
	case answer.StatusCode != http.StatusOK:
		return nil, &permanent{r.error(told(raw), nil, "")}
	}
	return raw, nil
}

func told(raw []byte) string {
	return fmt.Sprintf("says %.200q", strings.TrimSpace(string(raw)))
}

// unsent is a failure before the replica could execute anything.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// permanent is a failure that retrying cannot fix.
type permanent struct{ error }

func (p *permanent) Unwrap() error { return p.error }

// Permanent reports whether retrying cannot help: the board answered and refuses this device, or it is another board.
func Permanent(err error) bool {
	_, stays := errors.AsType[*permanent](err)
	return stays
}

func (r *remote) error(why string, err error, hint string) *path.Error {
	return &path.Error{What: "the board at " + r.Address, Why: why, Err: err, Hint: hint}
}

func (r *remote) failure(err error) error {
	if wrong, ok := errors.AsType[*identity.KeyError](err); ok {
		return &permanent{r.error("is another one", wrong, wrong.HintText())}
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return r.error("cannot be reached", err, "is it running, and is the address right?")
}

func (r *remote) status(ctx context.Context) (Status, error) {
	raw, err := r.ask(ctx, http.MethodGet, statusPath, 0, nil, 1<<20)
	if err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal(raw, &s); err != nil {
		return Status{}, r.error("does not say how it is", err, "is it of another version?")
	}
	return s, nil
}

func (r *remote) result(ctx context.Context, where string, wait time.Duration, body []byte) ([]byte, error) {
	raw, err := r.ask(ctx, http.MethodPost, where, wait, body, space.MaxResult)
	if err != nil {
		return nil, err
	}
	if _, err := space.DecodeResult(raw); err != nil {
		return nil, r.error("sends rubbish", err, "is it of another version?")
	}
	return raw, nil
}
