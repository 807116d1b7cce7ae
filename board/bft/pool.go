package bft

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"heddle/board/space"
	"heddle/identity"
)

// Limits of operations that wait for a block.
const (
	poolBytes     = 16 << 20
	poolAuthorOps = 512
)

// pool mirrors CometBFT's mempool with checked signatures, and limits what one author has there.
type pool struct {
	slack time.Duration

	mu      sync.Mutex
	entries map[[sha256.Size]byte]space.SignedOp
	authors map[identity.Key]int
	bytes   int
}

func newPool(slack time.Duration) *pool {
	return &pool{slack: slack, entries: map[[sha256.Size]byte]space.SignedOp{}, authors: map[identity.Key]int{}}
}

// decode reads an operation. It checks the signature unless admit did.
func (p *pool) decode(tx []byte) (space.SignedOp, error) {
	p.mu.Lock()
	op, known := p.entries[sha256.Sum256(tx)]
	p.mu.Unlock()
	if known {
		return op, nil
	}
	op, err := space.DecodeOp(tx)
	if err == nil {
		err = op.Verify()
	}
	return op, err
}

// admit adds an operation if there is room.
func (p *pool) admit(tx []byte, op space.SignedOp, now time.Time) space.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, author := sha256.Sum256(tx), op.Op().Author
	if _, known := p.entries[key]; known {
		return space.Result{Status: space.OK}
	}
	if p.authors[author] >= poolAuthorOps || p.bytes+len(tx) > poolBytes {
		p.sweep(now)
	}
	switch {
	case p.authors[author] >= poolAuthorOps:
		return space.Result{Status: space.Quota, Detail: fmt.Sprintf("%d operations of yours wait to be done, as many as may", poolAuthorOps)}
	case p.bytes+len(tx) > poolBytes:
		return space.Result{Status: space.Full, Detail: "as many operations wait to be done as the replica holds"}
	}
	p.entries[key] = op
	p.authors[author]++
	p.bytes += len(tx)
	return space.Result{Status: space.OK}
}

// remove drops an operation that was done or refused.
func (p *pool) remove(tx []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(sha256.Sum256(tx))
}

// sweep drops operations too old for any block. The mempool may have refused them without notice.
func (p *pool) sweep(now time.Time) {
	for key, op := range p.entries {
		if op.Op().At.Add(p.slack).Before(now) {
			p.drop(key)
		}
	}
}

func (p *pool) drop(key [sha256.Size]byte) {
	op, known := p.entries[key]
	if !known {
		return
	}
	delete(p.entries, key)
	p.bytes -= len(op.Bytes())
	author := op.Op().Author
	if p.authors[author]--; p.authors[author] == 0 {
		delete(p.authors, author)
	}
}
