package nft

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
)

// apart has the test in a network namespace of its own, which ends with it.
func apart(t *testing.T) (enter func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // and never unlocked: the thread goes with the test
	ns, err := netns.New()
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	return func() {
		runtime.LockOSThread()
		must(t, netns.Set(ns))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T) *nftables.Conn {
	t.Helper()
	c, err := nftables.New()
	must(t, err)
	return c
}

const name = "kith-sample"

// sample has a chain that a map leads on to the chains of peers, each with a set of its own, and a map of numbers.
func sample(numbers int, peers ...string) []Table {
	t := Table{Family: nftables.TableFamilyIPv4}
	leads := Set{Name: "leads", Key: nftables.TypeIPAddr, Data: nftables.TypeVerdict}
	values := Set{Name: "values", Key: nftables.TypeMark, Data: nftables.TypeMark}
	for _, peer := range peers {
		of := Set{Name: "of-" + peer, Key: nftables.TypeIPAddr, Elements: Spans([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})}
		for _, e := range Spans([]netip.Prefix{netip.MustParsePrefix("10.0." + peer + ".0/24")}) {
			if !e.IntervalEnd {
				e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: peer}
			}
			leads.Elements = append(leads.Elements, e)
		}
		t.Sets = append(t.Sets, of)
		t.Chains = append(t.Chains, Chain{Name: peer, Rules: [][]expr.Any{
			Rule(Load(Destination(), &expr.Lookup{SourceRegister: 1, SetName: of.Name}), Accept()),
		}})
	}
	for n := range numbers {
		key := binary.BigEndian.AppendUint32(nil, uint32(n))
		values.Elements = append(values.Elements, nftables.SetElement{Key: key, Val: key})
	}
	t.Sets = append(t.Sets, leads, values)
	t.Chains = append(t.Chains, Chain{Name: "first", Hook: nftables.ChainHookInput, Priority: *nftables.ChainPriorityFilter, Rules: [][]expr.Any{
		Load(Source(), &expr.Lookup{SourceRegister: 1, SetName: leads.Name, IsDestRegSet: true}), Drop(),
	}})
	return []Table{t}
}

// is gives the handles of the rules of each chain, and how many elements each set has.
func is(t *testing.T) (rules map[string]string, elements map[string]int) {
	t.Helper()
	c, rules, elements := connect(t), map[string]string{}, map[string]int{}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	must(t, err)
	for _, ch := range chains {
		list, err := c.GetRules(ch.Table, ch)
		must(t, err)
		for _, r := range list {
			rules[ch.Name] += fmt.Sprint(r.Handle, " ")
		}
	}
	sets, err := c.GetSets(&nftables.Table{Name: name, Family: nftables.TableFamilyIPv4})
	must(t, err)
	for _, s := range sets {
		list, err := c.GetSetElements(s)
		must(t, err)
		elements[s.Name] = len(list)
	}
	return rules, elements
}

func keeper() *Keeper { return &Keeper{Name: name, Log: slog.New(slog.DiscardHandler)} }

func TestOnlyWhatDiffersIsChanged(t *testing.T) {
	apart(t)
	k := keeper()
	must(t, k.Keep(sample(1500, "1", "2"), true))
	before, elements := is(t)
	if elements["values"] != 1500 || elements["leads"] < 3 || len(before) != 3 {
		t.Fatalf("%v %v", before, elements)
	}
	must(t, k.Keep(sample(1500, "1", "2"), true))
	if after, _ := is(t); !maps.Equal(before, after) {
		t.Errorf("nothing differs, and %v became %v", before, after)
	}
	must(t, k.Keep(sample(700, "2", "3"), true))
	after, elements := is(t)
	if after["2"] != before["2"] || after["first"] != before["first"] || after["3"] == "" || len(after) != 3 {
		t.Errorf("the rules %v became %v", before, after)
	}
	if _, stays := elements["of-1"]; stays || elements["values"] != 700 || elements["of-3"] != 2 {
		t.Errorf("%v", elements)
	}
	other := sample(700, "2", "3")
	other[0].Sets[3].Elements[5].Val = []byte{0, 0, 1, 0}
	other[0].Chains[2].Rules = other[0].Chains[2].Rules[:1]
	must(t, k.Keep(other, true))
	if last, elements := is(t); last["first"] == after["first"] || last["2"] != after["2"] || elements["values"] != 700 {
		t.Errorf("%v %v", last, elements)
	}
}

// TestOfALargeTransactionTheKernelIsHeard: it says something of each rule, all at once.
func TestOfALargeTransactionTheKernelIsHeard(t *testing.T) {
	apart(t)
	many := sample(0, "1")
	for n := range 200 {
		of := Chain{Name: fmt.Sprint("more", n)}
		for range 20 {
			of.Rules = append(of.Rules, Rule(SourceWithin(netip.MustParsePrefix("2001:db8::/32")), Drop()))
		}
		many[0].Chains = append(many[0].Chains, of)
	}
	must(t, keeper().Keep(many, true))
	if rules, _ := is(t); len(rules) != 202 {
		t.Errorf("%d chains have rules", len(rules))
	}
}

// TestTablesOfAnEarlierProcessStayUntilThisOneIsSure and knows better.
func TestTablesOfAnEarlierProcessStayUntilThisOneIsSure(t *testing.T) {
	apart(t)
	k := keeper()
	must(t, k.Keep(sample(1), false))
	if _, elements := is(t); elements["values"] != 1 {
		t.Fatal("there was none, and there is none")
	}
	must(t, k.Keep(sample(2), false)) // of its own
	next := keeper()
	must(t, next.Keep(sample(3), false))
	if _, elements := is(t); elements["values"] != 2 {
		t.Errorf("%v, want the table of before", elements)
	}
	must(t, next.Keep(sample(3), true))
	if _, elements := is(t); elements["values"] != 3 {
		t.Errorf("%v, want that of this process", elements)
	}
}

func TestWhatIsTakenAwayComesBack(t *testing.T) {
	enter := apart(t)
	k := keeper()
	take := func() {
		c := connect(t)
		c.DelTable(&nftables.Table{Name: name, Family: nftables.TableFamilyIPv4})
		must(t, c.Flush())
	}
	must(t, k.Keep(sample(1, "1"), true))
	take()
	must(t, k.Keep(sample(2, "1"), true)) // which comes before the news
	if _, elements := is(t); elements["values"] != 2 {
		t.Errorf("%v", elements)
	}
	take()
	c, fake := connect(t), &nftables.Table{Name: name, Family: nftables.TableFamilyIPv4}
	c.AddTable(fake)
	for n := range 5 { // as full as it was: two chains, three sets
		c.AddChain(&nftables.Chain{Name: fmt.Sprint("fake", n), Table: fake})
	}
	must(t, c.Flush())
	must(t, k.Keep(sample(3, "2"), true))
	if rules, elements := is(t); elements["values"] != 3 || len(rules) != 2 {
		t.Errorf("%v %v", rules, elements)
	}

	ctx, cancel := context.WithCancel(t.Context())
	around, looked, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		enter()
		ended <- Watch(ctx, around, func() error {
			defer func() { looked <- struct{}{} }()
			return k.Keep(sample(3, "2"), true)
		}, k)
	}()
	<-looked
	for _, how := range []func(){take, func() { // as `nft flush table` does: all is there, but for the rules
		c, of := connect(t), &nftables.Table{Name: name, Family: nftables.TableFamilyIPv4}
		c.FlushChain(&nftables.Chain{Name: "first", Table: of})
		must(t, c.Flush())
	}} {
		how()
		<-looked
		if rules, elements := is(t); elements["values"] != 3 || len(rules) != 2 {
			t.Errorf("%v %v", rules, elements)
		}
		<-looked // at its own table
	}
	around <- struct{}{}
	<-looked
	cancel()
	must(t, <-ended)
}
