// Package work has puzzles that cost a client computing time, so that one person cannot ask for much at once. A GPU solves them a
// thousand times faster than a script in a browser: they slow a flood down, and quotas bound it.
package work

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"heddle/internal/errhint"
)

// Puzzle is what a client gets. It finds for each part i a number n such that SHA-256(Text ":" i ":" n), in decimal, begins with
// Bits zero bits. Several small parts take about the same time for everybody, where one large part is a matter of luck.
type Puzzle struct {
	Text  string `json:"text"`
	Bits  int    `json:"bits"` // of each part
	Parts int    `json:"parts"`
}

// Sizes of a puzzle. Two to the power of its bits is how many hashes it costs on average, all parts together.
const (
	partBits = 4
	parts    = 1 << partBits
	MinBits  = partBits + 4
	MaxBits  = 32
)

// Life is how long an answer is taken.
const Life = 10 * time.Minute

// IDSize is the size of a puzzle's identifier in bytes.
const IDSize = 11

// One block of SHA-256 has room for a puzzle of 32 bytes, 43 characters, with its part and eight digits. So scripts are quick.
const (
	macSize  = 12
	bodySize = 8 + 1 + IDSize
)

// ErrBad says that an answer is wrong, or too late.
var ErrBad = &errhint.Error{What: "the proof of work", Why: "it is wrong or too old", Hint: "ask again for another puzzle"}

// Gate makes puzzles and checks answers. It keeps nothing: all gates of one key take each other's.
type Gate struct{ key []byte }

// NewGate takes a secret key.
func NewGate(key []byte) *Gate { return &Gate{key} }

// Puzzle makes a puzzle that costs two to the power of cost hashes.
func (g *Gate) Puzzle(now time.Time, cost int) Puzzle {
	cost = min(max(cost, MinBits), MaxBits)
	body := make([]byte, bodySize)
	binary.BigEndian.PutUint64(body, uint64(now.Unix()))
	body[8] = byte(cost - partBits)
	_, _ = rand.Read(body[9:]) // it never fails
	return Puzzle{base64.RawURLEncoding.EncodeToString(append(body, g.mac(body)...)), cost - partBits, parts}
}

func (g *Gate) mac(body []byte) []byte {
	h := hmac.New(sha256.New, g.key)
	h.Write(body)
	return h.Sum(nil)[:macSize]
}

// Check checks the answer to a puzzle. It returns the puzzle's identifier, and until when the caller has to remember it: an answer counts
// once. It fails with [ErrBad].
func (g *Gate) Check(now time.Time, text, answer string) (id []byte, until time.Time, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != bodySize+macSize || base64.RawURLEncoding.EncodeToString(raw) != text || !hmac.Equal(raw[bodySize:], g.mac(raw[:bodySize])) {
		return nil, until, ErrBad
	}
	made := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0)
	if until = made.Add(Life); now.After(until) || now.Before(made.Add(-Life)) {
		return nil, until, ErrBad
	}
	numbers := strings.SplitN(answer, ",", parts+1)
	if len(numbers) != parts {
		return nil, until, ErrBad
	}
	for i, n := range numbers {
		if len(n) > 20 || zeros(prefix(text, i), n) < int(raw[8]) {
			return nil, until, ErrBad
		}
	}
	return raw[9:bodySize], until, nil
}

func prefix(text string, part int) []byte { return []byte(text + ":" + strconv.Itoa(part) + ":") }

// zeros returns how many zero bits a hash begins with.
func zeros(prefix []byte, number string) int {
	sum := sha256.Sum256(append(prefix, number...))
	n := 0
	for _, b := range sum {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n
}

// mostTries is how many hashes a client spends on a puzzle.
const mostTries = 1 << (MaxBits + 3)

// Solve finds the answer, unless ctx ends before. It refuses what a hostile server could ask for.
func Solve(ctx context.Context, p Puzzle) (string, error) {
	if p.Parts < 1 || p.Parts > 64 || p.Bits < 0 || p.Bits > MaxBits-partBits || len(p.Text) > 200 {
		return "", errors.New("the puzzle is too large")
	}
	numbers := make([]string, p.Parts)
	tries := 0
	for i := range numbers {
		start := prefix(p.Text, i)
		for n := uint64(0); ; n++ {
			if tries++; tries&0xffff == 0 && ctx.Err() != nil {
				return "", ctx.Err()
			}
			if tries > mostTries {
				return "", errors.New("the puzzle takes too long")
			}
			if numbers[i] = strconv.FormatUint(n, 10); zeros(start, numbers[i]) >= p.Bits {
				break
			}
		}
	}
	return strings.Join(numbers, ","), nil
}
