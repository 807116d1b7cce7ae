package board

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/internal/netutil"
)

// memberLimits bound the connections of members.
var memberLimits = connlimit.Limits{All: 8192, Network: 2048, Source: 512}

// Limits of a server.
const (
	maxRequests     = 64 // concurrent, of one key
	idleConnection  = 30 * time.Second
	slowestRequest  = 10 * time.Second // to arrive
	drainForAnswers = 2 * time.Second
)

// ServeOptions configure [Serve].
type ServeOptions struct {
	Listener net.Listener // TCP
	Identity identity.Identity
	Backend  Backend
	// Member decides who is admitted. Others only learn that they are not.
	Member func(identity.Key) bool
	Log    *slog.Logger
}

// Serve answers requests until ctx ends, and closes the listener.
func Serve(ctx context.Context, o ServeOptions) error {
	// Refusals are sent inside HTTP, since a TLS alert would not explain them to people.
	config, err := o.Identity.Server(func(identity.Key) error { return nil }, Protocol)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           newHandler(o),
		ReadHeaderTimeout: slowestRequest,
		WriteTimeout:      MaxWait + 2*slowestRequest,
		IdleTimeout:       idleConnection,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, placeKey{}, c.(*connection).place)
		},
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		last, cancel := context.WithTimeout(context.Background(), drainForAnswers)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	})
	err = server.Serve(&listener{netutil.Patient(o.Listener), config, connlimit.NewPlaces(memberLimits)})
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// listener wraps TLS connections in a type of its own: net/http would close a *tls.Conn with an unknown ALPN protocol.
type listener struct {
	net.Listener
	config *tls.Config
	places *connlimit.Places
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	place := l.places.Enter(c)
	return &connection{tls.Server(place, l.config), place}, nil
}

type connection struct {
	*tls.Conn
	place *connlimit.Place
}

func (c *connection) Close() error {
	c.place.Leave()
	return c.Conn.Close()
}

// placeKey is the key of a connection's place in the context of its requests.
type placeKey struct{}

// ConnectionState does the handshake. If it fails, the first read fails too, and net/http closes the connection.
func (c *connection) ConnectionState() tls.ConnectionState {
	ctx, cancel := context.WithTimeout(context.Background(), slowestRequest)
	defer cancel()
	_ = c.HandshakeContext(ctx)
	return c.Conn.ConnectionState()
}

type handler struct {
	ServeOptions
	running *connlimit.Limiter[identity.Key]
}

func newHandler(o ServeOptions) http.Handler {
	h := &handler{ServeOptions: o, running: connlimit.NewLimiter[identity.Key](maxRequests, math.MaxInt)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+applyPath, h.bounded(answering(h.apply)))
	mux.HandleFunc("POST "+readPath, h.bounded(answering(h.read)))
	mux.HandleFunc("GET "+statusPath, h.bounded(h.status))
	return mux
}

// httpError is an answer other than 200.
type httpError struct {
	code int
	text string
}

func (e *httpError) Error() string { return e.text }

// bounded admits members, each with a limited number of concurrent requests.
func (h *handler) bounded(do func(http.ResponseWriter, *http.Request, identity.Key) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		peer, err := identity.PeerKey(*r.TLS)
		if err == nil && (h.Member != nil && !h.Member(peer)) {
			w.Header().Set("Connection", "close")
			err = &httpError{http.StatusForbidden, fmt.Sprintf("%v is not let in", peer)}
		}
		if err == nil {
			r.Context().Value(placeKey{}).(*connlimit.Place).Proved()
			if h.running.Acquire(peer) {
				defer h.running.Release(peer)
				err = do(w, r, peer)
			} else {
				err = &httpError{http.StatusTooManyRequests, fmt.Sprintf("%d requests at a time are as many as one key may have", maxRequests)}
			}
		}
		if err == nil {
			return
		}
		code := http.StatusInternalServerError
		if e, ok := errors.AsType[*httpError](err); ok {
			code = e.code
		} else {
			h.Log.Warn("a request failed", "peer", peer.Short(), "path", r.URL.Path, "error", err)
		}
		http.Error(w, err.Error(), code)
	}
}

// body reads a request, which must arrive in time. The connection may then be silent while the request waits.
func body(w http.ResponseWriter, r *http.Request) ([]byte, time.Duration, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(slowestRequest)); err != nil {
		return nil, 0, err
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, space.MaxOp))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, 0, &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", space.MaxOp)}
		}
		return nil, 0, &httpError{http.StatusBadRequest, "the request did not arrive whole"}
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return nil, 0, err
	}
	text := r.URL.Query().Get("wait")
	if text == "" {
		return raw, 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 {
		return nil, 0, &httpError{http.StatusBadRequest, "wait is no duration"}
	}
	return raw, min(wait, MaxWait), nil
}

func answering(do func(http.ResponseWriter, *http.Request, identity.Key) (space.Result, error)) func(http.ResponseWriter, *http.Request, identity.Key) error {
	return func(w http.ResponseWriter, r *http.Request, peer identity.Key) error {
		result, err := do(w, r, peer)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(result.Encode()) // a client that has gone is no failure here
		return nil
	}
}

func (h *handler) apply(w http.ResponseWriter, r *http.Request, peer identity.Key) (space.Result, error) {
	raw, wait, err := body(w, r)
	if err != nil {
		return space.Result{}, err
	}
	op, err := space.DecodeOp(raw)
	if err != nil {
		return space.Result{Status: space.Malformed, Detail: err.Error()}, nil
	}
	if author := op.Op().Author; author != peer {
		return space.Result{Status: space.Unsigned, Detail: fmt.Sprintf("the operation is said to be of %v, and %v brings it", author, peer)}, nil
	}
	if err := op.Verify(); err != nil { // here, since requests run in parallel
		return space.Result{Status: space.Unsigned, Detail: err.Error()}, nil
	}
	return h.Backend.Apply(r.Context(), op, wait)
}

func (h *handler) read(w http.ResponseWriter, r *http.Request, peer identity.Key) (space.Result, error) {
	raw, wait, err := body(w, r)
	if err != nil {
		return space.Result{}, err
	}
	q, err := space.DecodeQuery(raw)
	if err != nil {
		return space.Result{Status: space.Malformed, Detail: err.Error()}, nil
	}
	return h.Backend.Read(r.Context(), peer, q, wait)
}

func (h *handler) status(w http.ResponseWriter, r *http.Request, _ identity.Key) error {
	status, err := h.Backend.Status(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(status)
}
