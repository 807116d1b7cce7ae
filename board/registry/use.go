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

// DefaultCache is where this user's list of a board is kept.
func DefaultCache(board space.ID, maxAge time.Duration) (Cache, error) {
	file, err := identity.DefaultFile()
	return Cache{File: filepath.Join(filepath.Dir(file), "registrations.json"), Space: board, MaxAge: maxAge}, err
}

// Lookup reads the directory of a board, named as for [board.LoadReference]. If the board does not answer in time, it gives the
// list in this user's [DefaultCache]; see [Cache.Load].
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

// Peer finds the device that offers a service; of several it takes the one of the key, if that is not empty.
func (d Directory) Peer(service, key string) (Stream, error) {
	// A device may have several services, and then its key alone would be ambiguous.
	d.Streams = slices.DeleteFunc(slices.Clone(d.Streams), func(s Stream) bool { return s.Name != service })
	if key != "" {
		return d.Stream(key)
	}
	return d.Stream(service)
}

// List keeps a registration on the board of a reference until stop. Without a reference it does nothing. If the board cannot be
// reached, it logs that and tries again.
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
