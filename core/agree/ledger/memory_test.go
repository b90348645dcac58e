package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
)

// version is a contract as it was at a resource version; of its words those matter that a test says.
func version(name, uid string, rv int, words ...string) *v1alpha1.Contract {
	c := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: fmt.Sprint(rv)}}
	if slices.Contains(words, "held") {
		c.Finalizers = []string{v1alpha1.FinalizerContract}
	}
	if slices.Contains(words, "ending") {
		c.DeletionTimestamp = &metav1.Time{}
	}
	return c
}

// world has a ledger over an API server that answers what it is told to, and an informer's store.
type world struct {
	*Ledger
	t      *testing.T
	store  toolscache.Store
	answer *v1alpha1.Contract
	err    error
	during func() // while the API server works
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil), during: func() {}}
	w.store.Bookmark("1") // its first list
	answer := func(o client.Object) error {
		w.during()
		if w.err == nil {
			w.answer.DeepCopyInto(o.(*v1alpha1.Contract))
		}
		return w.err
	}
	c := interceptor.NewClient(nil, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			return answer(o)
		},
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return answer(o)
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return answer(o)
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			w.during()
			return w.err
		},
	})
	w.Ledger = &Ledger{Client: c, peers: newKind(toolscache.NewStore(nil)), contracts: newKind(w.store), requests: newKind(toolscache.NewStore(nil)), policies: newKind(toolscache.NewStore(nil))}
	return w
}

func (w *world) shows(objects ...*v1alpha1.Contract) func() {
	return func() {
		for _, o := range objects {
			if err := w.store.Update(o); err != nil {
				w.t.Error(err)
			}
		}
	}
}

// gone is a deletion as the watch tells of it: the object as it was, with the version of the deletion.
func (w *world) gone(name, uid string, rv int) func() {
	return func() {
		if err := w.store.Delete(version(name, uid, rv)); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) creates(answer *v1alpha1.Contract) func() {
	return func() {
		w.answer = answer
		if err := w.Create(w.t.Context(), &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: answer.Name}}); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) updates(answer *v1alpha1.Contract) func() {
	return func() {
		w.answer = answer
		if err := w.Update(w.t.Context(), answer.DeepCopy()); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) deletes(name string, err error) func() {
	return func() {
		w.err = err
		defer func() { w.err = nil }()
		if got := w.Delete(w.t.Context(), &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != err {
			w.t.Error(got)
		}
	}
}

// says is what the ledger says, in one line; Get must say the same, unless an informer shows more in between.
func (w *world) says() string {
	for {
		text, wrong := w.look()
		if wrong == "" {
			return text
		}
		if again, _ := w.look(); again == text {
			w.t.Error(wrong)
			return text
		}
	}
}

// look is what a snapshot says, and what Get says otherwise.
func (w *world) look() (text, wrong string) {
	var all []string
	for _, c := range w.Now().Contracts {
		text := fmt.Sprintf("%s/%s@%s", c.Name, c.UID, c.ResourceVersion)
		if c.DeletionTimestamp != nil {
			text += " ending"
		}
		all = append(all, text)
		var got v1alpha1.Contract
		if err := w.Get(w.t.Context(), client.ObjectKey{Name: c.Name}, &got); err != nil || got.UID != c.UID || got.ResourceVersion != c.ResourceVersion {
			wrong = fmt.Sprintf("Get gives %+v, %v, and the snapshot %s", got.ObjectMeta, err, text)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", "), wrong
}

func TestOwnWritesAndWhatTheInformerShows(t *testing.T) {
	type step struct {
		do   func()
		says string
	}
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "a")
	for name, steps := range map[string]func(*world) []step{
		"what others write": func(w *world) []step {
			return []step{{w.shows(version("a", "1", 5)), "a/1@5"}, {w.shows(version("a", "1", 6), version("b", "2", 7)), "a/1@6, b/2@7"}, {w.gone("a", "1", 8), "b/2@7"}}
		},
		"an own write is there at once, and nothing older takes its place": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 5)), "a/1@5"}, {w.updates(version("a", "1", 9)), "a/1@9"},
				{w.shows(version("a", "1", 7)), "a/1@9"}, {w.shows(version("a", "1", 9)), "a/1@9"}, {w.shows(version("a", "1", 12)), "a/1@12"},
			}
		},
		"answers that come in another order than the writes": func(w *world) []step {
			return []step{{w.updates(version("a", "1", 9)), "a/1@9"}, {w.updates(version("a", "1", 8)), "a/1@9"}}
		},
		"an answer that comes later than the news": func(w *world) []step {
			return []step{{w.shows(version("a", "1", 12)), "a/1@12"}, {w.updates(version("a", "1", 9)), "a/1@12"}}
		},
		"an answer that comes later than the deletion": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 5)), "a/1@5"}, {w.shows(version("a", "1", 9)), "a/1@9"}, {w.gone("a", "1", 10), ""},
				{w.updates(version("a", "1", 9)), ""},
			}
		},
		"what was made here": func(w *world) []step {
			return []step{
				{w.creates(version("a", "1", 9)), "a/1@9"}, {w.shows(version("b", "2", 8)), "a/1@9, b/2@8"}, {w.shows(version("a", "1", 9)), "a/1@9, b/2@8"},
			}
		},
		"what was made here and taken away by others, which no event tells": func(w *world) []step {
			return []step{{w.creates(version("a", "1", 9)), "a/1@9"}, {func() { w.store.Bookmark("12") }, ""}}
		},
		"what is there but for a bookmark": func(w *world) []step {
			return []step{{w.creates(version("a", "1", 9)), "a/1@9"}, {func() { w.store.Bookmark("8") }, "a/1@9"}}
		},
		"an own deletion is remembered until it shows": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 5), version("b", "2", 6)), "a/1@5, b/2@6"}, {w.deletes("a", nil), "b/2@6"},
				{w.shows(version("a", "1", 7)), "b/2@6"}, {w.gone("a", "1", 8), "b/2@6"},
			}
		},
		"what was gone already": func(w *world) []step {
			return []step{{w.shows(version("a", "1", 5)), "a/1@5"}, {w.deletes("a", notFound), ""}}
		},
		"a deletion that is refused": func(w *world) []step {
			return []step{{w.shows(version("a", "1", 5)), "a/1@5"}, {w.deletes("a", apierrors.NewForbidden(schema.GroupResource{}, "a", nil)), "a/1@5"}}
		},
		"what a finalizer holds is ending": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 5, "held")), "a/1@5"}, {w.deletes("a", nil), "a/1@5 ending"}, {w.shows(version("a", "1", 7, "held")), "a/1@7 ending"},
				{w.shows(version("a", "1", 8, "held", "ending")), "a/1@8 ending"}, {w.updates(version("a", "1", 9, "ending")), ""},
				{w.shows(version("a", "1", 8, "held", "ending")), ""}, {w.gone("a", "1", 10), ""},
			}
		},
		"its last finalizer was taken off under the version that it had": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 8, "held", "ending")), "a/1@8 ending"}, {w.updates(version("a", "1", 8, "ending")), ""}, {w.gone("a", "1", 10), ""},
			}
		},
		"a finalizer that nobody knew of here": func(w *world) []step {
			return []step{{w.shows(version("a", "1", 5)), "a/1@5"}, {w.deletes("a", nil), ""}, {w.shows(version("a", "1", 8, "held", "ending")), "a/1@8 ending"}}
		},
		"made again here under the same name": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 5)), "a/1@5"}, {w.deletes("a", nil), ""}, {w.creates(version("a", "2", 9)), "a/2@9"},
				{w.shows(version("a", "1", 7)), "a/2@9"}, {w.gone("a", "1", 8), "a/2@9"}, {w.shows(version("a", "2", 9)), "a/2@9"},
			}
		},
		"made again by others under the same name": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 5)), "a/1@5"}, {w.deletes("a", nil), ""}, {w.shows(version("a", "2", 9)), "a/2@9"},
			}
		},
		"made, deleted, made and deleted before anything shows": func(w *world) []step {
			return []step{
				{w.creates(version("a", "1", 5)), "a/1@5"}, {w.deletes("a", nil), ""}, {w.creates(version("a", "2", 7)), "a/2@7"}, {w.deletes("a", nil), ""},
				{w.shows(version("a", "1", 5)), ""}, {w.gone("a", "1", 6), ""}, {w.shows(version("a", "2", 7)), ""}, {w.gone("a", "2", 8), ""},
			}
		},
		"deleted by others and made again here, of which the informer knows neither": func(w *world) []step {
			return []step{{w.shows(version("a", "1", 5)), "a/1@5"}, {w.creates(version("a", "2", 9)), "a/2@9"}, {w.gone("a", "1", 8), "a/2@9"}, {w.shows(version("a", "2", 9)), "a/2@9"}}
		},
		"made again while the deletion is answered": func(w *world) []step {
			return []step{
				{w.shows(version("a", "1", 5)), "a/1@5"},
				{func() {
					w.during = func() { w.during = func() {}; w.creates(version("a", "2", 9))() }
					w.deletes("a", nil)()
				}, "a/2@9"},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for i, s := range steps(w) {
				s.do()
				if got := w.says(); got != s.says {
					t.Errorf("step %d: %q, want %q", i+1, got, s.says)
				}
			}
			w.store.Bookmark("1000")
			w.Now()
			if k := w.contracts; len(k.written) > 0 || len(k.deleted) > 0 && len(k.store.List()) == 0 {
				t.Errorf("for ever remembered: %v, %v", k.written, k.deleted)
			}
		})
	}
}

func TestAWriterDoesNotChangeWhatOthersRead(t *testing.T) {
	w := newWorld(t)
	w.shows(version("a", "1", 5, "held"))()
	before := w.Now()
	var mine v1alpha1.Contract
	if err := w.Get(t.Context(), client.ObjectKey{Name: "a"}, &mine); err != nil {
		t.Fatal(err)
	}
	mine.Finalizers[0] = "changed"
	w.answer = version("a", "1", 9, "held")
	if err := w.Patch(t.Context(), &mine, client.RawPatch(types.MergePatchType, nil)); err != nil {
		t.Fatal(err)
	}
	mine.Finalizers[0] = "changed"
	w.deletes("a", nil)()
	w.Now().Contracts[0].Finalizers = nil // what ends by the ledger's word is a copy
	if c := before.Contracts[0]; c.DeletionTimestamp != nil || c.Finalizers[0] != v1alpha1.FinalizerContract || c.ResourceVersion != "5" {
		t.Errorf("%+v", c.ObjectMeta)
	}
	if c := w.Now().Contracts[0]; c.DeletionTimestamp == nil || len(c.Finalizers) != 1 || c.Finalizers[0] != v1alpha1.FinalizerContract || c.ResourceVersion != "9" {
		t.Errorf("%+v", c.ObjectMeta)
	}
}

// What nobody deleted is never missing, whoever reads while the informer catches up.
func TestReadersWhileTheInformerCatchesUp(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 200 {
		c := version("a", "1", 2*i+3)
		w.creates(c)()
		wg.Add(2)
		go func() { defer wg.Done(); w.shows(c)() }()
		go func() {
			defer wg.Done()
			if len(w.Now().Contracts) != 1 {
				t.Error("it is missing")
			}
		}()
		wg.Wait()
	}
}

func TestLookups(t *testing.T) {
	contract := func(name, peer string, role v1alpha1.Role, state v1alpha1.RelationState) *v1alpha1.Contract {
		return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ContractSpec{Peer: peer, Role: role}, Status: v1alpha1.ContractStatus{State: state}}
	}
	ending := contract("d", "bob", v1alpha1.RoleProvider, "")
	ending.DeletionTimestamp = &metav1.Time{}
	s := Snapshot{
		Peers: []*v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "B"}}},
		Contracts: []*v1alpha1.Contract{
			contract("a", "bob", v1alpha1.RoleConsumer, v1alpha1.StateEnding), contract("b", "bob", v1alpha1.RoleConsumer, ""), contract("c", "carol", v1alpha1.RoleConsumer, ""), ending,
		},
	}
	if s.Peer("B") != s.Peers[0] || s.PeerNamed("bob") != s.Peers[0] || s.Peer("bob") != nil || s.PeerNamed("B") != nil {
		t.Error("peers")
	}
	if got := s.With("bob", ""); len(got) != 3 {
		t.Errorf("with bob: %v", got)
	}
	if c := s.InForce("bob", v1alpha1.RoleConsumer); c == nil || c.Name != "b" || s.InForce("bob", v1alpha1.RoleProvider) != nil {
		t.Errorf("in force: %v", c)
	}
}

// lists is an API server's side of an informer; it cannot begin a watch with a list.
type lists struct{ toolscache.ListWatch }

func (*lists) IsWatchListSemanticsUnSupported() bool { return true }

// running are informers as a manager's cache has them.
type running struct {
	cache.Informers
	t       *testing.T
	watches *watch.RaceFreeFakeWatcher // of contracts
}

func (r *running) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	watches := watch.NewRaceFreeFake()
	if _, is := o.(*v1alpha1.Contract); is {
		r.watches = watches
	}
	informer := toolscache.NewSharedIndexInformer(&lists{toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &v1alpha1.ContractList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watches, nil },
	}}, o, 0, nil)
	go informer.RunWithContext(r.t.Context())
	if !toolscache.WaitForCacheSync(r.t.Context().Done(), informer.HasSynced) {
		r.t.Error("the informer does not read")
	}
	return informer, nil
}

// An informer's store says up to which version it has read, also by bookmarks; all else rests on that.
func TestWhatIsWrittenIsRememberedUntilTheInformerHasReadSoFar(t *testing.T) {
	informers := &running{t: t}
	w := newWorld(t)
	var err error
	if w.Ledger, err = New(t.Context(), w.Client, informers); err != nil {
		t.Fatal(err)
	}
	soon := func(want string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); w.says() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%q, want %q", w.says(), want)
			}
		}
	}
	w.creates(version("a", "1", 9))()
	soon("a/1@9")
	informers.watches.Add(version("b", "2", 7))
	soon("a/1@9, b/2@7")
	informers.watches.Delete(version("b", "2", 10)) // and of a nothing was told: it is gone
	soon("")
	w.creates(version("c", "3", 12))()
	soon("c/3@12")
	informers.watches.Action(watch.Bookmark, version("", "", 13))
	soon("")
}

// Without it the ledger would take a cache that lags for what is there.
func TestInformersThatDoNotSayHowFarTheyReadAreRefused(t *testing.T) {
	featuretesting.SetFeatureDuringTest(t, features.AtomicFIFO, false)
	if _, err := New(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "AtomicFIFO") {
		t.Errorf("%v", err)
	}
}
