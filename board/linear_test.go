package board

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"heddle/board/space"
	"heddle/internal/polltest"
)

// call is what a client asked of one key of the board; reply is how it was answered.
type call struct {
	verb  string
	key   int64
	value int64
}

type reply struct {
	value int64 // of the tuple that was read, taken, or in the way
	found bool
}

// queueModel is the board as one thing that does one call at a time: of each key a queue of values.
var queueModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int64][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(call).key
			byKey[key] = append(byKey[key], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return []int64(nil) },
	Step: func(state, input, output any) (bool, any) {
		queue, in, out := state.([]int64), input.(call), output.(reply)
		oldest := reply{}
		if len(queue) > 0 {
			oldest = reply{queue[0], true}
		}
		switch {
		case in.verb == "out" || in.verb == "cas" && !oldest.found:
			return out == reply{}, append(slices.Clone(queue), in.value)
		case in.verb == "inp" && oldest.found:
			return out == oldest, queue[1:]
		}
		return out == oldest, queue
	},
	Equal: func(a, b any) bool { return slices.Equal(a.([]int64), b.([]int64)) },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
}

func ask(ctx context.Context, c *Client, in call) (reply, error) {
	template := space.Template{space.Int(in.key), space.AnyOf(space.TypeInt)}
	tuple := space.Tuple{space.Int(in.key), space.Int(in.value)}
	everybody := Put{Lease: time.Hour, Takers: anyone}
	var e space.Entry
	var err error
	switch in.verb {
	case "out":
		_, err = c.Out(ctx, tuple, everybody)
		return reply{}, err
	case "cas":
		_, other, done, err := c.Cas(ctx, template, tuple, everybody)
		if err != nil || done {
			return reply{}, err
		}
		e = *other
	case "inp":
		e, err = c.Inp(ctx, template)
	case "rdp":
		e, err = c.Rdp(ctx, template)
	}
	if errors.Is(err, ErrNone) {
		return reply{}, nil
	}
	if err != nil {
		return reply{}, err
	}
	return reply{e.Tuple()[1].Int(), true}, nil
}

func TestWhatManyDoAtOnceIsLinearizable(t *testing.T) {
	const clients, calls = 8, 80
	seed := rand.Uint64()
	board := serve(t, fresh(t), LocalOptions{})
	begin := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	var all sync.WaitGroup
	for n := range clients {
		c := client(t, board.Reference, fresh(t))
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			for i := range calls {
				in := call{[]string{"out", "cas", "inp", "inp", "rdp"}[r.IntN(5)], r.Int64N(4), int64(n*calls + i)}
				asked := time.Since(begin)
				out, err := ask(t.Context(), c, in)
				answered := time.Since(begin)
				if err != nil {
					t.Errorf("%+v: %v", in, err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: n, Input: in, Call: int64(asked), Output: out, Return: int64(answered)})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if got := porcupine.CheckOperationsTimeout(queueModel, history, time.Minute); got != porcupine.Ok {
		t.Errorf("seed %d: %d calls are %v", seed, len(history), got)
	}
}

// What the check above must not let pass.
func TestTheModelFindsFaults(t *testing.T) {
	put := porcupine.Operation{ClientId: 0, Input: call{"out", 0, 1}, Call: 0, Output: reply{}, Return: 1}
	take := porcupine.Operation{ClientId: 1, Input: call{"inp", 0, 0}, Call: 2, Output: reply{1, true}, Return: 5}
	for name, last := range map[string]porcupine.Operation{
		"taken twice":         {ClientId: 2, Input: call{"inp", 0, 0}, Call: 3, Output: reply{1, true}, Return: 6},
		"read after taken":    {ClientId: 2, Input: call{"rdp", 0, 0}, Call: 6, Output: reply{1, true}, Return: 7},
		"not there when put":  {ClientId: 2, Input: call{"cas", 0, 2}, Call: 2, Output: reply{2, true}, Return: 3},
		"a value from nobody": {ClientId: 2, Input: call{"rdp", 0, 0}, Call: 2, Output: reply{9, true}, Return: 3},
	} {
		if porcupine.CheckOperations(queueModel, []porcupine.Operation{put, take, last}) {
			t.Errorf("%s: taken for linearizable", name)
		}
	}
}

func TestWhoWaitsIsServedOnceAndInOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	board := serve(t, fresh(t), LocalOptions{})
	giver := client(t, board.Reference, fresh(t))
	template := space.Template{space.String("job"), space.AnyOf(space.TypeInt)}
	const takers = 6
	got, read := make(chan int64, takers), make(chan int64, 1)
	for range takers {
		c := client(t, board.Reference, fresh(t))
		go func() {
			e, err := c.In(ctx, template)
			if err != nil {
				t.Error(err)
			}
			got <- e.Tuple()[1].Int()
		}()
	}
	reader := client(t, board.Reference, fresh(t))
	go func() {
		e, err := reader.Rd(ctx, space.Template{space.String("job"), space.Int(takers)})
		if err != nil {
			t.Error(err)
		}
		read <- e.Tuple()[1].Int()
	}()
	polltest.Await(t, "all wait", func() bool { return board.waits(t) == takers+1 })
	for i := range int64(takers) {
		if _, err := giver.Out(ctx, space.Tuple{space.String("job"), space.Int(i)}, Put{Lease: time.Hour, Takers: anyone}); err != nil {
			t.Fatal(err)
		}
	}
	var taken []int64
	for range takers {
		taken = append(taken, <-got)
	}
	slices.Sort(taken)
	if want := []int64{0, 1, 2, 3, 4, 5}; !slices.Equal(taken, want) {
		t.Errorf("taken: %v", taken)
	}
	if _, err := giver.Out(ctx, space.Tuple{space.String("job"), space.Int(takers)}, Put{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if n := <-read; n != takers {
		t.Errorf("read: %d", n)
	}
	if n := board.waits(t); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

func TestWaitingEndsAtItsDeadline(t *testing.T) {
	board := serve(t, fresh(t), LocalOptions{})
	c := client(t, board.Reference, fresh(t))
	for name, wait := range map[string]func(context.Context, space.Template) (space.Entry, error){"in": c.In, "rd": c.Rd} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := wait(ctx, space.Template{space.String("x")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		gone, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := wait(gone, space.Template{space.String("x")})
			ended <- err
		}()
		polltest.Await(t, "it waits", func() bool { return board.waits(t) > 0 })
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		polltest.Await(t, "the board hears of it", func() bool { return board.waits(t) == 0 })
	}
}

func (r *running) waits(t *testing.T) int {
	t.Helper()
	s, err := r.Local.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Waiting
}
