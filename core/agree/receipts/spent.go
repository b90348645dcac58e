package receipts

import (
	"maps"
	"math/big"
	"time"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
)

// spentFor is how far back it can be asked what was spent: the longest month.
const spentFor = 32 * 24 * time.Hour

// spending names the receipts that end in an hour, in a currency: together they take the room of one, however many a provider makes.
type spending struct {
	until    time.Time // the end of the hour
	currency string
}

// inTime reports whether an hour may be asked about. One that is far off comes of a clock that was wrong.
func (s spending) inTime(now time.Time) bool { return now.Sub(s.until).Abs() < spentFor }

// Spent is what pods of a namespace at peers came to in a currency since a moment, which is the begin of an hour at most spentFor ago, and what they come
// to in an hour as they are now, without traffic: by the receipts that end after that moment, and by what was counted here where there is none yet.
func (b *Book) Spent(namespace, currency string, since time.Time) (spent, perHour *big.Rat, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now()
	spent, perHour = new(big.Rat), new(big.Rat)
	for _, a := range b.accounts {
		if a.Provides || !a.Ended.IsZero() && a.Ended.Before(since) {
			continue
		}
		if err := b.open(a); err != nil {
			return nil, nil, err
		}
		if err := b.openSpent(a, now.Wall); err != nil {
			return nil, nil, err
		}
		for s, by := range a.spent {
			if due := by[namespace]; due != nil && s.currency == currency && s.until.After(since) && s.until.Before(now.Wall.Add(2*hour)) {
				spent.Add(spent, due)
			}
		}
		prices := pricesIn(a.pricesNow(), currency)
		if len(prices) == 0 {
			continue
		}
		if a.Ended.IsZero() {
			b.count(a, now)
			perHour.Add(perHour, costs(a.Parts.Now[namespace], prices))
		}
		for i := range a.Parts.Open {
			if x := &a.Parts.Open[i]; !x.Hour.Before(since) {
				due, _, _, err := receipt.Due(x.Used[namespace].words(), prices)
				if err != nil {
					return nil, nil, err
				}
				for _, amount := range due {
					if n, ok := new(big.Rat).SetString(amount); ok {
						spent.Add(spent, n)
					}
				}
			}
		}
	}
	return spent, perHour, nil
}

// pricesIn are prices, if they are in a currency.
func pricesIn(prices map[string]string, currency string) map[string]string {
	for _, text := range prices { // all are in one
		if p, err := contract.ParsePrice(text); err == nil && p.Currency == currency {
			return prices
		}
		break
	}
	return nil
}

// costs is what amounts come to in an hour.
func costs(held Amounts, prices map[string]string) *big.Rat {
	hour, sum := sums{}, new(big.Rat)
	hour.plus(held, 3600)
	for name, text := range prices {
		p, err := contract.ParsePrice(text)
		if err != nil || hour[name] == nil {
			continue
		}
		if n, err := receipt.Hours(name, hour[name].String()); err == nil {
			sum.Add(sum, n.Mul(n, p.Amount))
		}
	}
	return sum
}

// openSpent reads what the receipts of the file come to by namespace, if that was not done: there may be more of spentFor than are at hand.
func (b *Book) openSpent(a *account, now time.Time) error {
	if a.spent != nil {
		return nil
	}
	kept, err := b.readShares(a.id)
	if err != nil {
		return err
	}
	items, err := b.items(a.id, now.Add(-spentFor))
	if err != nil {
		return err
	}
	a.spent = map[spending]map[string]*big.Rat{}
	for _, item := range items {
		if used, known := kept[item.Receipt.Sequence]; known && item.Answer != nil {
			a.spend(item.Receipt, *item.Answer, used, now)
		}
	}
	return nil
}

// spend notes what namespaces have of what a receipt comes to: of one that was disputed no more than was counted here, or a provider could close all others
// by what it says.
func (a *account) spend(r receipt.Receipt, said receipt.Answer, used map[string]receipt.Sums, now time.Time) {
	dues, total := r.Due, r.Total
	if said.Verdict == receipt.Disputed {
		var err error
		if dues, total, _, err = receipt.Due(lesser(r.Used, said.Used), r.Prices); err != nil { // it was checked when it came
			return
		}
	}
	if total == "0" {
		return
	}
	maps.DeleteFunc(a.spent, func(s spending, _ map[string]*big.Rat) bool { return !s.inTime(now) })
	s := spending{until: r.To.UTC().Add(hour - 1).Truncate(hour), currency: r.Currency}
	if !s.inTime(now) {
		return
	}
	if a.spent[s] == nil {
		a.spent[s] = map[string]*big.Rat{}
	}
	for _, share := range sharesOfDue(used, dues) {
		n, ok := new(big.Rat).SetString(share.Total)
		if !ok {
			continue
		}
		if before := a.spent[s][share.Namespace]; before != nil {
			n.Add(n, before)
		}
		a.spent[s][share.Namespace] = n
	}
}

// lesser is of each sum what both have.
func lesser(a, b receipt.Sums) receipt.Sums {
	out := receipt.Sums{}
	for name, text := range a {
		n, known := new(big.Int).SetString(text, 10)
		m, counted := new(big.Int).SetString(b[name], 10)
		if known && counted {
			if n.Cmp(m) > 0 {
				n = m
			}
			out[name] = n.String()
		}
	}
	return out
}
