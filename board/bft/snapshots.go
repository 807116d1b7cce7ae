package bft

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	dbm "github.com/cometbft/cometbft-db"

	"heddle/board/space"
	"heddle/internal/atomicfile"
)

// keptSnapshots gives a replica time to fetch one until the second next is written.
const keptSnapshots = 2

// snapshots are files with the state after some blocks, written in the background for other replicas.
type snapshots struct {
	dir string // "" keeps none
	log *slog.Logger

	stopping atomic.Bool
	writing  sync.WaitGroup
	mu       sync.Mutex
	all      []snapshotFile // ordered by height
}

// snapshotFile is a snapshot with the hash of each chunk.
type snapshotFile struct {
	height int64
	sums   [][]byte
}

func (s snapshotFile) hash() []byte {
	sum := sha256.Sum256(bytes.Join(s.sums, nil))
	return sum[:]
}

// openSnapshots opens or creates a directory of snapshots.
func openSnapshots(dir string, log *slog.Logger) (*snapshots, error) {
	s := &snapshots{dir: dir, log: log}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		height, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil { // incomplete after a crash
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		sums, err := sumsOf(s.file(height))
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, snapshotFile{height, sums})
	}
	slices.SortFunc(s.all, byHeight)
	return s, nil
}

func byHeight(a, b snapshotFile) int { return cmp.Compare(a.height, b.height) }

func (s *snapshots) file(height int64) string {
	return filepath.Join(s.dir, strconv.FormatInt(height, 10))
}

// take writes the current state in the background.
func (s *snapshots) take(height int64, rows dbm.Iterator) {
	if s.dir == "" || s.stopping.Load() {
		_ = rows.Close()
		return
	}
	s.writing.Go(func() {
		if err := s.write(height, rows); err != nil {
			s.log.Warn("no snapshot was written", "height", height, "error", err)
		}
	})
}

var errStopping = errors.New("the replica stops")

func (s *snapshots) write(height int64, rows dbm.Iterator) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	err = atomicfile.WriteFunc(s.file(height), 0o600, func(w io.Writer) error {
		out := space.NewSnapshotWriter(w)
		for ; rows.Valid(); rows.Next() {
			if s.stopping.Load() {
				return errStopping
			}
			if err := out.Row(rows.Key()[1:], rows.Value()); err != nil {
				return err
			}
		}
		return errors.Join(rows.Error(), out.Flush())
	})
	if err != nil {
		return err
	}
	sums, err := sumsOf(s.file(height))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, snapshotFile{height, sums})
	slices.SortFunc(s.all, byHeight) // a slow one may be overtaken
	for len(s.all) > keptSnapshots {
		err = errors.Join(err, os.Remove(s.file(s.all[0].height)))
		s.all = s.all[1:]
	}
	return err
}

func (s *snapshots) list() []snapshotFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// chunk reads a chunk, or returns nil if there is none.
func (s *snapshots) chunk(height int64, index int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.all, func(f snapshotFile) bool { return f.height == height })
	if at < 0 || index < 0 || index >= len(s.all[at].sums) {
		return nil, nil
	}
	f, err := os.Open(s.file(height))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, int64(index)*snapshotChunk, snapshotChunk))
}

func (s *snapshots) stop() {
	s.stopping.Store(true)
	s.writing.Wait()
}

// sumsOf hashes the chunks of a file.
func sumsOf(file string) (sums [][]byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for chunk := make([]byte, snapshotChunk); ; {
		n, err := io.ReadFull(f, chunk)
		if n > 0 {
			sum := sha256.Sum256(chunk[:n])
			sums = append(sums, sum[:])
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return sums, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
