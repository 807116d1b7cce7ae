package registry

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"heddle/board"
	"heddle/board/space"
	"heddle/identity"
)

// DefaultCache returns this user's stored list of a board.
func DefaultCache(board space.ID, maxAge time.Duration) (Cache, error) {
	file, err := identity.DefaultFile()
	return Cache{File: filepath.Join(filepath.Dir(file), "registrations.json"), Space: board, MaxAge: maxAge}, err
}

// Lookup reads the directory of a board, named as for [board.LoadReference]. If the board does not answer in time, it
// returns this user's stored list; see [Cache.Load].
func Lookup(ctx context.Context, reference string, id identity.Identity, timeout, maxAge time.Duration) (Directory, error) {
	r, err := board.LoadReference(reference)
	if err != nil {
		return Directory{}, err
	}
	client, err := board.NewClient(board.ClientOptions{Reference: r, Identity: id, Timeout: timeout})
	if err != nil {
		return Directory{}, err
	}
	defer client.Close()
	cache, err := DefaultCache(client.Space, maxAge)
	if err != nil {
		return Directory{}, err
	}
	return cache.Load(ctx, client)
}

// Peer finds the device that offers a service. If several do, key selects one; it may be empty.
func (d Directory) Peer(service, key string) (Stream, error) {
	// A device may offer several services, so its key alone would be ambiguous.
	d.Streams = slices.DeleteFunc(slices.Clone(d.Streams), func(s Stream) bool { return s.Name != service })
	if key != "" {
		return d.Stream(key)
	}
	return d.Stream(service)
}

// List keeps a registration on a board, with retries, until stop is called. Without a reference it does nothing.
func List(ctx context.Context, reference string, id identity.Identity, r Registration, log *slog.Logger) (stop func(), err error) {
	if reference == "" {
		return func() {}, nil
	}
	at, err := board.LoadReference(reference)
	if err != nil {
		return nil, err
	}
	client, err := board.NewClient(board.ClientOptions{Reference: at, Identity: id, Log: log})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		defer client.Close()
		if err := Keep(ctx, client, r, Lease, log); err != nil {
			kind, name, _ := r.label()
			log.Error("the board does not list it", "kind", kind, "name", name, "error", err)
		}
	})
	return func() {
		cancel()
		keeping.Wait()
	}, nil
}
