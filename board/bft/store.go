package bft

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	dbm "github.com/cometbft/cometbft-db"

	"heddle/board/space"
	"heddle/path"
)

// store keeps the rows of a space and their block, written atomically. CometBFT replays blocks lost in a power failure.
type store struct{ db dbm.DB }

// position identifies the state in the rows.
type position struct {
	Height  int64  `json:"height"`
	AppHash []byte `json:"app_hash"` // the next header's; see checkpoint
	Space   []byte `json:"space"`    // hash of the whole state
}

const (
	rowPrefix = 'r'
	syncEvery = 64 // blocks
)

var positionKey = []byte("position")

func (s *store) load(config space.Config) (*space.Space, position, error) {
	damaged := func(err error) error {
		return &path.Error{What: "the replica's store", Why: "it does not hold what was written", Err: err,
			Hint: "move the directory data of its home away and nothing else, and run it with --from-snapshot"}
	}
	var at position
	if raw, err := s.db.Get(positionKey); err != nil {
		return nil, at, err
	} else if raw != nil {
		if err := json.Unmarshal(raw, &at); err != nil {
			return nil, at, damaged(err)
		}
	}
	rows, err := s.rows()
	if err != nil {
		return nil, at, err
	}
	board, err := space.Load(config, rows)
	if err != nil {
		return nil, at, damaged(err)
	}
	if hash := board.Hash(); at.Height > 0 && !bytes.Equal(hash[:], at.Space) {
		return nil, at, damaged(fmt.Errorf("the state has the hash %x, and not %x", hash, at.Space))
	}
	return board, at, nil
}

func (s *store) rows() (rows []space.Change, err error) {
	all, err := s.iterate()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	for ; all.Valid(); all.Next() {
		rows = append(rows, space.Change{Key: bytes.Clone(all.Key()[1:]), Value: bytes.Clone(all.Value())})
	}
	return rows, all.Error()
}

// iterate returns a snapshot of the rows in key order.
func (s *store) iterate() (dbm.Iterator, error) {
	return s.db.Iterator([]byte{rowPrefix}, []byte{rowPrefix + 1})
}

// replace replaces all rows at once.
func (s *store) replace(rows []space.Change, at position) error {
	old, err := s.rows()
	if err != nil {
		return err
	}
	changes := make([]space.Change, 0, len(old)+len(rows))
	for _, row := range old {
		changes = append(changes, space.Change{Key: row.Key})
	}
	return s.write(append(changes, rows...), at, true)
}

func (s *store) commit(changes []space.Change, at position) error {
	return s.write(changes, at, at.Height%syncEvery == 0)
}

func (s *store) write(changes []space.Change, at position, sync bool) (err error) {
	batch := s.db.NewBatch()
	defer func() { err = errors.Join(err, batch.Close()) }()
	for _, c := range changes {
		key := append([]byte{rowPrefix}, c.Key...)
		if c.Value == nil {
			err = batch.Delete(key)
		} else {
			err = batch.Set(key, c.Value)
		}
		if err != nil {
			return err
		}
	}
	raw, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := batch.Set(positionKey, raw); err != nil {
		return err
	}
	if sync {
		return batch.WriteSync()
	}
	return batch.Write()
}
