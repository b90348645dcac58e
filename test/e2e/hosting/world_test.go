//go:build lab && soak

package hosting_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/go-logr/logr"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/api/v1alpha1/crds"
	"kith.dev/core/provide/hosting"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/tenants"
	"kith.dev/core/trust/identity"
	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// provider is a laptop with a real engine, hosting running against it, and the door to it.
type provider struct {
	*testing.T
	config *rest.Config // administrator
	admin  client.Client
	host   *hosting.Host
	door   *door.Door
	stop   context.CancelFunc
	done   chan struct{}
	out    io.Writer // of the whole test: hosting logs across stories
}

func newScheme(t *testing.T) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// newProvider starts a laptop.
func newProvider(t *testing.T) *provider {
	if os.Geteuid() != 0 {
		t.Skip("a lab needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	l, err := freshLab(ctx, t)
	if err != nil {
		t.Fatal(err)
	}
	laptop := l.Laptop("alice")
	config, err := clientcmd.BuildConfigFromFlags("", laptop.Path("/var/lib/kith/k8s/admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.Dial, config.QPS = laptop.Dial, -1
	p := &provider{T: t, config: config, out: t.Output()}
	p.admin, err = client.New(config, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	p.installCRDs(ctx)
	p.fence(ctx)
	p.start()
	t.Cleanup(func() { p.halt() })
	return p
}

func freshLab(ctx context.Context, t *testing.T) (*lab.Lab, error) {
	archives, err := images.Build(ctx, t.TempDir())
	if err != nil {
		return nil, err
	}
	bin, err := lab.FindBin("")
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("hosting-%d", os.Getpid())
	t.Cleanup(func() {
		if err := lab.Down(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return lab.Up(ctx, lab.Options{
		Name: name, Laptops: 1, Images: archives,
		Daemon: []string{filepath.Join(bin, "kith-k8s"), "server"},
	})
}

// fence says what kithd says where it keeps one: guests run on no other node.
func (p *provider) fence(ctx context.Context) {
	p.Helper()
	var nodes corev1.NodeList
	if err := p.admin.List(ctx, &nodes); err != nil || len(nodes.Items) != 1 {
		p.Fatal(len(nodes.Items), err)
	}
	node := &nodes.Items[0]
	patch := client.MergeFrom(node.DeepCopy())
	node.Labels[v1alpha1.LabelFenced] = "true"
	if err := p.admin.Patch(ctx, node, patch); err != nil {
		p.Fatal(err)
	}
}

func (p *provider) installCRDs(ctx context.Context) {
	p.Helper()
	files, err := fs.Glob(crds.FS, "*.yaml")
	if err != nil || len(files) == 0 {
		p.Fatal("no CRDs", err)
	}
	for _, file := range files {
		data, _ := crds.FS.ReadFile(file)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			p.Fatal(err)
		}
		if err := p.admin.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
			p.Fatal(err)
		}
		p.eventually(20*time.Second, file+" established", func() bool {
			now := &apiextensionsv1.CustomResourceDefinition{}
			_ = p.admin.Get(ctx, client.ObjectKeyFromObject(crd), now)
			for _, c := range now.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true
				}
			}
			return false
		})
	}
}

// start runs hosting as the daemon does; halt ends it. Pods know of neither.
func (p *provider) start() {
	p.Helper()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(p.out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctrllog.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(p.out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log := slog.New(slog.NewTextHandler(p.out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	skip := true
	mgr, err := ctrl.NewManager(p.config, ctrl.Options{
		Scheme: newScheme(p.T), Cache: hosting.CacheOptions(),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: &skip}, // halt and start in one process
	})
	if err != nil {
		p.Fatal(err)
	}
	agreed, err := ledger.New(p.Context(), mgr.GetClient(), mgr.GetCache())
	if err != nil {
		p.Fatal(err)
	}
	if p.host, err = hosting.New(mgr, agreed, nil, log); err != nil {
		p.Fatal(err)
	}
	if p.door, err = door.NewDoor(p.config, p.host, nil, log); err != nil {
		p.Fatal(err)
	}
	p.host.OnShut(p.door.Shut)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop, p.done = cancel, make(chan struct{})
	go func() {
		defer close(p.done)
		if err := mgr.Start(ctx); err != nil {
			p.Error("manager:", err)
		}
	}()
	if _, err := tenants.Install(ctx, p.admin, slog.New(slog.DiscardHandler)); err != nil {
		p.Fatal(err)
	}
	mgr.GetCache().WaitForCacheSync(ctx)
	if err := p.host.Load(ctx); err != nil {
		p.Fatal(err)
	}
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		p.Fatal("cache not synced")
	}
}

func (p *provider) halt() {
	p.stop()
	<-p.done
}

// consumer is a peer with a contract, and a Kubernetes client whose every request goes through the door.
type consumer struct {
	*provider
	grants.Consumer
	contract *v1alpha1.Contract
	config   *rest.Config
	client   client.Client
	set      *kubernetes.Clientset
}

func (p *provider) newConsumer(name string, limit corev1.ResourceList) *consumer {
	p.Helper()
	ctx := context.Background()
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		p.Fatal(err)
	}
	id := identity.IDOf(pub)
	peer := &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"trust": "none"}},
		Spec:       v1alpha1.PeerSpec{ID: id.String()},
	}
	contract := &v1alpha1.Contract{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + id.Short()},
		Spec: v1alpha1.ContractSpec{
			ID: id.Short() + "0001", Revision: 1, Role: v1alpha1.RoleProvider, Peer: name,
			Document: []byte("{}"), ConsumerSignature: []byte("c"), ProviderSignature: []byte("p"), Resources: limit,
		},
	}
	for _, o := range []client.Object{peer, contract} {
		if err := p.admin.Create(ctx, o); err != nil {
			p.Fatal(err)
		}
	}
	c := &consumer{provider: p, contract: contract, Consumer: grants.Consumer{ID: id.String(), Compact: id.Compact(), Name: name}}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.door.Serve(w, r, c.ID)
	}))
	front.EnableHTTP2 = true
	front.StartTLS()
	c.config = &rest.Config{Host: front.URL + "/kube", QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if c.client, err = client.New(c.config, client.Options{Scheme: newScheme(p.T), Mapper: p.admin.RESTMapper()}); err != nil {
		p.Fatal(err)
	}
	if c.set, err = kubernetes.NewForConfig(c.config); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := p.host.EndContract(ctx, contract); err != nil {
			p.Error(err)
		}
		front.CloseClientConnections()
		front.Close()
		_ = p.admin.Delete(ctx, contract)
		_ = p.admin.Delete(ctx, peer)
	})
	return c
}

func (c *consumer) ensure(contract *v1alpha1.Contract, home string, mapping v1alpha1.NamespaceMapping) (string, error) {
	terms, err := c.host.TermsOf(context.Background(), contract.Spec.ID, c.ID)
	if err != nil {
		return "", err
	}
	return c.host.EnsureNamespace(context.Background(), terms, home, mapping, tenants.Origin{})
}

func (c *consumer) twin(home string, mapping v1alpha1.NamespaceMapping) string {
	c.Helper()
	c.eventually(5*time.Second, "the contract known, which hosting hears of by a watch", func() bool {
		_, err := c.host.TermsOf(context.Background(), c.contract.Spec.ID, c.ID)
		return err == nil
	})
	name, err := c.ensure(c.contract, home, mapping)
	if err != nil {
		c.Fatal(err)
	}
	return name
}

// offload writes an OffloadedPod of one container, through the door.
func (c *consumer) offload(namespace, name string, change func(*corev1.PodTemplateSpec)) *v1alpha1.OffloadedPod {
	c.Helper()
	opod := &v1alpha1.OffloadedPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.OffloadedPodSpec{HomeNamespace: "home", HomeUID: "uid-of-" + "home", Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
			Spec: corev1.PodSpec{
				NodeName: "kith-provider", ServiceAccountName: "builder", SchedulerName: "theirs",
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{
					Name: "main", Image: "kith.dev/echo:1",
					VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-x7x2p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
				}},
				Volumes: []corev1.Volume{{Name: "kube-api-access-x7x2p", VolumeSource: corev1.VolumeSource{
					Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
					}},
				}}},
			},
		}},
	}
	if change != nil {
		change(&opod.Spec.Template)
	}
	if err := c.client.Create(context.Background(), opod); err != nil {
		c.Fatal(err)
	}
	return opod
}

func (c *consumer) opod(namespace, name string) *v1alpha1.OffloadedPod {
	c.Helper()
	opod := &v1alpha1.OffloadedPod{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, opod); err != nil {
		c.Fatal(err)
	}
	return opod
}

// pod gives nil when there is none.
func (c *consumer) pod(namespace, name string) *corev1.Pod {
	c.Helper()
	pod := &corev1.Pod{}
	err := c.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return pod
}

func (c *consumer) running(namespace, name string) *corev1.Pod {
	c.Helper()
	var pod *corev1.Pod
	c.eventually(30*time.Second, "pod "+name+" running", func() bool {
		pod = c.pod(namespace, name)
		return pod != nil && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
	})
	return pod
}

func (p *provider) eventually(within time.Duration, what string, ok func() bool) {
	p.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("not within %s: %s", within, what)
		}
	}
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// share writes the provider's policy for everybody.
func (p *provider) share(level v1alpha1.PodSecurityLevel) {
	p.Helper()
	policy := sharing.Default(50)
	policy.Spec.Images = &v1alpha1.ImageRules{Present: []string{"kith.dev/*"}}
	policy.Spec.PodSecurity = level
	err := p.admin.Create(context.Background(), policy)
	if apierrors.IsAlreadyExists(err) {
		patch := fmt.Sprintf(`{"spec":{"podSecurity":%q}}`, level)
		err = p.admin.Patch(context.Background(), policy, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	if err != nil {
		p.Fatal(err)
	}
}

func discoveryOf(p *provider) discovery.DiscoveryInterface {
	p.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(p.config)
	if err != nil {
		p.Fatal(err)
	}
	return d
}
