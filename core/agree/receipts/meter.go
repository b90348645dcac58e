package receipts

import (
	"maps"
	"math/big"
	"time"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
)

// Amounts are of resources at one moment: thousandths of a core, bytes, numbers.
type Amounts map[string]int64

// Instant is a moment by the clocks of this machine. Of two instants of one boot the seconds awake tell how long the machine ran between them.
type Instant struct {
	Wall  time.Time `json:"wall"`
	Boot  string    `json:"boot,omitempty"` // names the boot; "" when that is not known
	Awake int64     `json:"awake"`          // seconds since the boot, less those that the machine slept
}

// awake is for how many seconds the machine surely ran between two instants: none, over a boot.
func awake(from, to Instant) int64 {
	if from.Boot == "" || from.Boot != to.Boot {
		return 0
	}
	return max(0, to.Awake-from.Awake)
}

// passed is how many seconds there were between two instants for others, who do not sleep when this machine does.
func passed(from, to Instant) int64 {
	return max(awake(from, to), int64(to.Wall.Sub(from.Wall)/time.Second))
}

// meter counts what is held under one contract. It is kept on disk as it is.
type meter struct {
	At       Instant `json:"at"` // up to when it has counted
	Revision int64   `json:"revision"`
	Granted  Amounts `json:"granted"` // from At on
	Used     Amounts `json:"used"`
	// Since is where the open interval begins: at the provider that of its next receipt. Reserved and Held are the sums since then. At the consumer
	// they are what it counted less what the receipts say.
	Since    time.Time `json:"since"`
	Reserved sums      `json:"reserved"`
	Held     sums      `json:"held"`
	Peak     Amounts   `json:"peak"` // the most that was used at once since the last receipt
}

type sums map[string]*big.Int

// plus adds amounts held for so many seconds.
func (s sums) plus(amounts Amounts, seconds int64) {
	for name, amount := range amounts {
		if amount <= 0 || seconds <= 0 {
			continue
		}
		if s[name] == nil {
			s[name] = new(big.Int)
		}
		s[name].Add(s[name], new(big.Int).Mul(big.NewInt(amount), big.NewInt(seconds)))
	}
}

// plusAll puts back what a receipt would have said.
func (s sums) plusAll(said receipt.Sums) {
	for name, text := range said {
		if n, ok := new(big.Int).SetString(text, 10); ok && s[name] != nil {
			s[name].Add(s[name], n)
		}
	}
}

// minus takes what a receipt says out of the sums. least, when there is one, is what is left at least.
func (s sums) minus(said receipt.Sums, least *big.Int) {
	for name, text := range said {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			continue
		}
		if s[name] == nil {
			s[name] = new(big.Int)
		}
		if s[name].Sub(s[name], n); least != nil && s[name].Cmp(least) < 0 {
			s[name].Set(least)
		}
	}
}

// words writes the sums as receipts have them; what is below nothing is nothing.
func (s sums) words() receipt.Sums {
	out := receipt.Sums{}
	for name, n := range s {
		if n.Sign() > 0 {
			out[name] = n.String()
		}
	}
	return out
}

// newMeter begins to count.
func newMeter(now Instant) meter {
	return meter{At: now, Since: second(now.Wall), Reserved: sums{}, Held: sums{}, Peak: Amounts{}}
}

func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// count adds what was held until now, by what was known last.
func (m *meter) count(now Instant, provides bool) {
	seconds := passed(m.At, now)
	if provides { // who slept gave nothing
		seconds = awake(m.At, now)
	}
	m.Reserved.plus(m.Granted, seconds)
	m.Held.plus(m.Used, seconds)
	m.At = now
}

// set says what is held from now on, and reports whether that is new. More than is granted is never counted, and nothing that is not granted.
func (m *meter) set(revision int64, granted, used Amounts) (changed bool) {
	counted := Amounts{}
	for name, amount := range used {
		if amount = min(amount, granted[name]); amount > 0 {
			counted[name] = amount
			m.Peak[name] = max(m.Peak[name], amount)
		}
	}
	changed = m.Revision != revision || !maps.Equal(m.Granted, granted) || !maps.Equal(m.Used, counted)
	m.Revision, m.Granted, m.Used = revision, maps.Clone(granted), counted
	return changed
}

// take gives the sums for a receipt that ends at to, and begins the next interval there. What would be more than the amounts allow for the interval, as
// after a step of the wall clock, goes into the next one.
func (m *meter) take(to time.Time) (reserved, held receipt.Sums) {
	seconds := int64(to.Sub(m.Since) / time.Second)
	cut := func(s sums) receipt.Sums {
		out := sums{}
		for name, n := range s {
			most := new(big.Int).Mul(big.NewInt(m.Granted[name]), big.NewInt(seconds))
			out[name] = new(big.Int).Set(n)
			if _, granted := m.Granted[name]; granted && n.Cmp(most) > 0 {
				out[name] = most
			}
		}
		said := out.words()
		s.minus(said, nil)
		return said
	}
	reserved, held = cut(m.Reserved), cut(m.Held)
	m.Since, m.Peak = to, Amounts{}
	maps.Copy(m.Peak, m.Used)
	return reserved, held
}

// How far what a provider counted may be above what the consumer did.
const (
	toleratedParts = 50         // a fiftieth, 2 %
	toleratedTime  = 60         // seconds of the most that was used at once
	toleratedBytes = 10_000_000 // of traffic, some of which is lost on its way
)

// judge compares a receipt with what was counted here. Less than that is never disputed: a provider does not count what it slept.
func (m *meter) judge(said receipt.Sums) receipt.Verdict {
	for name, text := range said {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return receipt.Disputed
		}
		own := new(big.Int)
		if m.Held[name] != nil {
			own.Set(m.Held[name])
		}
		slack := new(big.Int).Mul(big.NewInt(m.Peak[name]), big.NewInt(toleratedTime))
		if name == contract.Traffic {
			slack.SetInt64(toleratedBytes)
		}
		slack = orPart(slack, own)
		if n.Cmp(own.Add(own, slack)) > 0 {
			return receipt.Disputed
		}
	}
	return receipt.Agreed
}

// orPart is what is tolerated by itself, or by its part of what was counted, whichever is more.
func orPart(slack, own *big.Int) *big.Int {
	if part := new(big.Int).Quo(own, big.NewInt(toleratedParts)); part.Cmp(slack) > 0 {
		return part
	}
	return slack
}

// settle takes a receipt that was judged out of the count. Agreed ones may leave it a little below nothing, so that a tolerance is granted once and not
// with each receipt. What is left is no more than can have been held since the receipt's end, and of traffic than was carried about then and later: what the
// provider did not count is not saved up.
func (m *meter) settle(r receipt.Receipt, verdict receipt.Verdict, now Instant, p *parts) {
	var least *big.Int
	if verdict == receipt.Disputed {
		least = new(big.Int)
	}
	m.Held.minus(r.Used, least)
	m.forgive(r, verdict, now, p)
	m.Reserved.minus(r.Reserved, new(big.Int))
	since := max(0, int64(now.Wall.Sub(r.To)/time.Second)) + int64(clockSkew/time.Second)
	for _, counted := range []sums{m.Held, m.Reserved} {
		for name, n := range counted {
			if name == contract.Traffic { // it stops with the provider
				continue
			}
			if most := new(big.Int).Mul(big.NewInt(m.Granted[name]), big.NewInt(since)); n.Cmp(most) > 0 {
				n.Set(most)
			}
		}
	}
	if r.To.After(m.Since) {
		m.Since = r.To
	}
	if since < int64(2*hour/time.Second) { // of several that come late the most counts for all
		m.Peak = Amounts{}
		maps.Copy(m.Peak, m.Used)
	}
}

// forgive levels traffic after a receipt, and before its hours are taken out of parts. Who sends counts what is lost on its way, with each receipt anew. So
// what an agreed one says above what was counted in its time is forgiven up to the tolerance, which is for an hour: a provider that makes more receipts has
// no more of it.
func (m *meter) forgive(r receipt.Receipt, verdict receipt.Verdict, now Instant, p *parts) {
	n := m.Held[contract.Traffic]
	if n == nil {
		return
	}
	own := p.carried(r.From, r.To)
	if said, ok := new(big.Int).SetString(r.Used[contract.Traffic], 10); ok && verdict == receipt.Agreed {
		from := m.Since
		if r.From.After(from) {
			from = r.From
		}
		seconds := min(max(0, int64(r.To.Sub(from)/time.Second)), int64(hour/time.Second))
		most := orPart(big.NewInt(toleratedBytes*seconds/int64(hour/time.Second)), own)
		if said.Sub(said, own); said.Cmp(most) > 0 {
			said = most
		}
		if said.Sign() > 0 {
			n.Add(n, said)
		}
	}
	if most := p.carried(r.To.Add(-clockSkew), now.Wall.Add(hour)); n.Cmp(most.Add(most, orPart(big.NewInt(toleratedBytes), own))) > 0 {
		n.Set(most)
	}
}

// clockSkew between two laptops that is put up with.
const clockSkew = 10 * time.Minute
