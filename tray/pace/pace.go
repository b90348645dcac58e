// Package pace says how often something may be said to a person: so many times at once, and from then on once in so long. The
// notifications go by it; it knows of no clock, no screen and no words.
//
// A Pace is a value that its owner keeps, and clones before it changes it. It must never forget what was said before it may be said
// anew, nor keep what does not matter any more.
package pace

import (
	"maps"
	"time"
)

// Limit is how often one thing may be said: Burst times at once, and once more for each Every that has passed.
type Limit struct {
	Burst int
	Every time.Duration
}

// Pace remembers how much was said of each subject: until when that counts, were it said once in Every from the start (the generic cell rate
// algorithm, by its virtual schedule).
type Pace map[string]time.Time

// Clone gives a Pace that can be changed.
func (p Pace) Clone() Pace {
	if p == nil {
		return Pace{}
	}
	return maps.Clone(p)
}

// Left gives how many times it may be said now.
func (p Pace) Left(subject string, l Limit, now time.Time) int {
	ahead := p[subject].Sub(now)
	if ahead <= 0 {
		return l.Burst
	}
	used := int((ahead + l.Every - 1) / l.Every)
	return max(l.Burst-used, 0)
}

// When gives when it may be said: now, or later.
func (p Pace) When(subject string, l Limit, now time.Time) time.Time {
	if p.Left(subject, l, now) > 0 {
		return now
	}
	return p[subject].Add(-time.Duration(l.Burst-1) * l.Every)
}

// Said notes that it is said now.
func (p Pace) Said(subject string, l Limit, now time.Time) {
	from := now
	if p[subject].After(now) {
		from = p[subject]
	}
	p[subject] = from.Add(l.Every)
}

// Forget drops what does not count any more.
func (p Pace) Forget(now time.Time) {
	maps.DeleteFunc(p, func(_ string, until time.Time) bool { return !until.After(now) })
}
