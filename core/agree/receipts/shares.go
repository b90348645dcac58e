package receipts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"slices"
	"time"

	"kith.dev/core/base/durable"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
)

// Receipts are of a contract as a whole. How much of one each namespace of the consumer used is the consumer's own affair: it counts that beside the
// meter, hour by hour, splits each receipt in these proportions, and keeps that in a file of its own, which nobody signs.

// sharesOf ends the name of that file.
const sharesOf = ".shares"

// keptHours bounds what waits for receipts; what is older is put together.
const keptHours = 48

// parts is what namespaces were counted at, of what there is no receipt of yet.
type parts struct {
	Now  map[string]Amounts `json:"now,omitempty"` // from the meter's At on, by namespace
	Open []part             `json:"open,omitempty"`
}

// part is what was counted in an hour of UTC.
type part struct {
	Hour time.Time       `json:"hour"`
	Used map[string]sums `json:"used"` // by namespace
}

func (x *part) plus(namespace string, s sums) {
	if x.Used[namespace] == nil {
		x.Used[namespace] = sums{}
	}
	for name, n := range s {
		if x.Used[namespace][name] == nil {
			x.Used[namespace][name] = new(big.Int)
		}
		x.Used[namespace][name].Add(x.Used[namespace][name], n)
	}
}

// count adds what was held between two instants.
func (p *parts) count(from, to Instant) {
	if len(p.Now) == 0 {
		return
	}
	end := second(to.Wall)
	begin := end.Add(-time.Duration(passed(from, to)) * time.Second)
	for begin.Before(end) {
		at := begin.Truncate(hour)
		next := at.Add(hour)
		if oldest := end.Truncate(hour).Add(-keptHours * hour); at.Before(oldest) {
			at, next = oldest, oldest.Add(hour)
		}
		if next.After(end) {
			next = end
		}
		x := p.at(at)
		for namespace, amounts := range p.Now {
			held := sums{}
			held.plus(amounts, int64(next.Sub(begin)/time.Second))
			x.plus(namespace, held)
		}
		begin = next
	}
	p.fold()
}

// carry adds traffic that passed until now, of which namespaces have as they have pods. It is counted each minute, so it is of the hour that now ends.
func (p *parts) carry(bytes int64, now Instant) {
	weights := map[string]*big.Int{}
	for namespace, amounts := range p.Now {
		if n := amounts[pods]; n > 0 {
			weights[namespace] = big.NewInt(n)
		}
	}
	x := p.at(second(now.Wall).Add(-time.Second).Truncate(hour))
	for namespace, n := range divide(big.NewInt(bytes), weights) {
		x.plus(namespace, sums{contract.Traffic: n})
	}
	p.fold()
}

// carried is the traffic that was counted from one moment to another, by whole hours.
func (p *parts) carried(from, to time.Time) *big.Int {
	sum := new(big.Int)
	for _, x := range p.Open {
		for _, held := range x.Used {
			if n := held[contract.Traffic]; n != nil && x.Hour.Before(to) && x.Hour.Add(hour).After(from) {
				sum.Add(sum, n)
			}
		}
	}
	return sum
}

// fold puts together what waits for too long.
func (p *parts) fold() {
	for len(p.Open) > keptHours {
		for namespace, held := range p.Open[0].Used {
			p.Open[1].plus(namespace, held)
		}
		p.Open = p.Open[1:]
	}
}

// at is the part of an hour, which is made when there is none.
func (p *parts) at(hour time.Time) *part {
	i, found := slices.BinarySearchFunc(p.Open, hour, func(x part, t time.Time) int { return x.Hour.Compare(t) })
	if !found {
		p.Open = slices.Insert(p.Open, i, part{Hour: hour, Used: map[string]sums{}})
	}
	return &p.Open[i]
}

// between is what was counted from one moment to another, by whole hours; when nothing was, that of the nearest hour: clocks differ.
func (p *parts) between(from, to time.Time) map[string]sums {
	all := part{Used: map[string]sums{}}
	nearest := -1
	for i := range p.Open {
		x := &p.Open[i]
		if nearest < 0 || !x.Hour.After(to) {
			nearest = i
		}
		if x.Hour.Before(to) && x.Hour.Add(hour).After(from) {
			for namespace, held := range x.Used {
				all.plus(namespace, held)
			}
		}
	}
	if len(all.Used) == 0 && nearest >= 0 {
		return p.Open[nearest].Used
	}
	return all.Used
}

// settle takes what a receipt is of out of what waits, and gives its shares.
func (p *parts) settle(r receipt.Receipt) map[string]receipt.Sums {
	shares := split(r.Used, p.between(r.From, r.To))
	p.Open = slices.DeleteFunc(p.Open, func(x part) bool { return !x.Hour.Add(hour).After(r.To) })
	if len(p.Open) > 0 && p.Open[0].Hour.Before(r.To) { // it ends within the hour: the next one has the rest
		for namespace, held := range p.Open[0].Used {
			held.minus(shares[namespace], new(big.Int))
		}
	}
	return shares
}

// split gives of each sum to each namespace in proportion to what it was counted at, and no more or less than all of it. Where nothing was counted it is
// under "".
func split(said receipt.Sums, counted map[string]sums) map[string]receipt.Sums {
	out := map[string]receipt.Sums{}
	for name, text := range said {
		all, ok := new(big.Int).SetString(text, 10)
		if !ok {
			continue
		}
		weights := weightsOf(name, counted)
		if name == contract.Traffic && len(weights) == 0 { // all of it was lost on its way here
			weights = weightsOf(pods, counted)
		}
		for namespace, n := range divide(all, weights) {
			if out[namespace] == nil {
				out[namespace] = receipt.Sums{}
			}
			out[namespace][name] = n.String()
		}
	}
	return out
}

// weightsOf are what namespaces were counted at of a resource.
func weightsOf(name string, counted map[string]sums) map[string]*big.Int {
	weights := map[string]*big.Int{}
	for namespace, held := range counted {
		if n := held[name]; n != nil && n.Sign() > 0 {
			weights[namespace] = n
		}
	}
	return weights
}

// divide cuts a whole number into whole numbers in proportion to weights; what is nothing is left out.
func divide(all *big.Int, weights map[string]*big.Int) map[string]*big.Int {
	sum := new(big.Int)
	for _, n := range weights {
		sum.Add(sum, n)
	}
	out := map[string]*big.Int{}
	if sum.Sign() == 0 {
		weights, sum = map[string]*big.Int{"": big.NewInt(1)}, big.NewInt(1)
	}
	reached, given := new(big.Int), new(big.Int)
	for _, namespace := range slices.Sorted(maps.Keys(weights)) { // each up to where all before it and itself come
		reached.Add(reached, weights[namespace])
		up := new(big.Int).Quo(new(big.Int).Mul(all, reached), sum)
		if n := new(big.Int).Sub(up, given); n.Sign() > 0 {
			out[namespace] = n
		}
		given = up
	}
	return out
}

// Share is what a namespace of this cluster has of a receipt, or of what is open. Namespace is "" for what was not counted here.
type Share struct {
	Namespace string
	Used      receipt.Sums
	Due       map[string]string
	Total     string
}

// shared is a line of the file of shares.
type shared struct {
	Sequence int64                   `json:"sequence"` // of the receipt
	Used     map[string]receipt.Sums `json:"used"`     // by namespace
}

// sharesOfDue splits what is due as use was.
func sharesOfDue(used map[string]receipt.Sums, due map[string]string) []Share {
	totals := map[string]*big.Int{}
	by := map[string]map[string]string{}
	for name, amount := range due {
		weights := map[string]*big.Int{}
		for namespace, held := range used {
			if n, ok := new(big.Int).SetString(held[name], 10); ok && n.Sign() > 0 {
				weights[namespace] = n
			}
		}
		all, err := receipt.Billionths(amount)
		if err != nil { // it was checked when it came
			continue
		}
		for namespace, n := range divide(all, weights) {
			if by[namespace] == nil {
				by[namespace], totals[namespace] = map[string]string{}, new(big.Int)
			}
			by[namespace][name] = receipt.Money(n)
			totals[namespace].Add(totals[namespace], n)
		}
	}
	names := map[string]bool{}
	for namespace := range used {
		names[namespace] = true
	}
	for namespace := range by {
		names[namespace] = true
	}
	var list []Share
	for _, namespace := range slices.Sorted(maps.Keys(names)) {
		s := Share{Namespace: namespace, Used: used[namespace], Due: by[namespace], Total: "0"}
		if n := totals[namespace]; n != nil {
			s.Total = receipt.Money(n)
		}
		list = append(list, s)
	}
	return list
}

// Shares are those of an account's receipts, by their numbers, and under 0 those of what is open. Only consumers have any.
func (b *Book) Shares(of Account) (map[int64][]Share, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[of.Contract]
	if a == nil || a.Provides {
		return nil, nil
	}
	kept, err := b.readShares(a.id)
	if err != nil {
		return nil, err
	}
	out := map[int64][]Share{}
	for _, item := range of.Items {
		used, known := kept[item.Receipt.Sequence]
		if !known { // of before it was counted by namespace
			used = split(item.Receipt.Used, nil)
		}
		out[item.Receipt.Sequence] = sharesOfDue(used, item.Receipt.Due)
	}
	if a.Ended.IsZero() {
		due, _, _, err := receipt.Due(of.Used, of.Prices)
		if err != nil {
			return nil, err
		}
		out[0] = sharesOfDue(split(of.Used, a.Parts.between(of.Since, b.Now().Wall)), due)
	}
	return out, nil
}

// readShares reads the file of shares, by the number of the receipt. A line that was not written whole is none.
func (b *Book) readShares(id string) (map[int64]map[string]receipt.Sums, error) {
	text, err := os.ReadFile(b.path(id, sharesOf))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[int64]map[string]receipt.Sums{}
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, len(text)+1)
	for in.Scan() {
		var line shared
		if json.Unmarshal(in.Bytes(), &line) == nil && line.Sequence > 0 {
			out[line.Sequence] = line.Used
		}
	}
	return out, in.Err()
}

// share keeps the shares of a receipt. They are an estimate for the owner: what is signed does not wait for them.
func (b *Book) share(a *account, r receipt.Receipt, said receipt.Answer, now time.Time) {
	used := a.Parts.settle(r)
	if len(used) == 0 {
		return
	}
	line, err := json.Marshal(shared{r.Sequence, used})
	if err == nil {
		err = appendLine(b.path(a.id, sharesOf), append(line, '\n'))
	}
	if err != nil {
		b.Log.Error("what namespaces have of a receipt was not noted", "contract", a.id, "receipt", r.Sequence, "err", err)
	}
	if a.spent != nil {
		a.spend(r, said, used, now)
	}
}

// reduceShares leaves those of the receipts that are kept.
func (b *Book) reduceShares(a *account, from int64) error {
	kept, err := b.readShares(a.id)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, sequence := range slices.Sorted(maps.Keys(kept)) {
		if sequence <= from {
			continue
		}
		line, err := json.Marshal(shared{sequence, kept[sequence]})
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	return durable.WriteFile(b.path(a.id, sharesOf), text.Bytes(), 0o600)
}

// pricesNow are those of the revision in force; none when that is not known.
func (a *account) pricesNow() map[string]string {
	if signed, known := a.chain.Revision(a.Meter.Revision); known {
		if doc, err := contract.Parse(signed.Document); err == nil {
			return doc.Prices
		}
	}
	return nil
}
