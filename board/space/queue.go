package space

import (
	"cmp"
	"container/heap"
	"slices"
)

// before orders tuples by the end of their lease.
func (t *tuple) before(other *tuple) bool {
	return cmp.Or(t.Until.Compare(other.Until), cmp.Compare(t.Seq, other.Seq)) < 0
}

func (m *memory) before(other *memory) bool {
	return cmp.Or(cmp.Compare(m.until, other.until), slices.Compare(m.id[:], other.id[:])) < 0
}

func (t *tuple) move(to int)  { t.place = to }
func (m *memory) move(to int) { m.place = to }

// ending has an end time and knows its place in a queue.
type ending[T any] interface {
	before(T) bool
	move(to int)
}

// queue is a heap.Interface ordered by end time.
type queue[T ending[T]] []T

func (q queue[T]) Len() int           { return len(q) }
func (q queue[T]) Less(i, j int) bool { return q[i].before(q[j]) }
func (q queue[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].move(i)
	q[j].move(j)
}

func (q *queue[T]) Push(x any) {
	x.(T).move(len(*q))
	*q = append(*q, x.(T))
}

func (q *queue[T]) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	return x
}

var _ heap.Interface = (*queue[*tuple])(nil)
