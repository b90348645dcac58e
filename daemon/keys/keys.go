// Package keys gives the keys by which peers know this cluster: its identity, and that of its tunnel, from files or from a Secret.
//
// It must never replace a key that is there, however damaged: peers know this cluster by it.
package keys

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"kith.dev/core/local/cluster"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/config"
)

// Names of the keys in a Secret (config.Config.IdentitySecret).
const (
	identityKey  = "identity.key"  // PKCS#8 PEM
	wireguardKey = "wireguard.key" // as `wg genkey` prints
)

// secretPatience is how long the API server may take to give the Secret until kithd gives up and is started again.
const secretPatience = 30 * time.Second

// Load gives them; the first time they are made. Without an engine there is no tunnel, and no key of one.
func Load(cfg config.Config) (me *identity.Identity, tunnel gateway.PrivateKey, err error) {
	if cfg.IdentitySecret != "" {
		return ofSecret(cfg)
	}
	if me, err = identity.Load(filepath.Join(cfg.DataDir, "identity")); err != nil || cfg.Engine == config.EngineNone {
		return me, tunnel, err
	}
	tunnel, err = gateway.LoadKey(filepath.Join(cfg.DataDir, "wireguard.key"))
	return me, tunnel, err
}

func ofSecret(cfg config.Config) (*identity.Identity, gateway.PrivateKey, error) {
	rest, err := cluster.Config(cfg.Kubeconfig, cfg.KubeconfigContext)
	if err != nil {
		return nil, gateway.PrivateKey{}, err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, gateway.PrivateKey{}, err
	}
	namespace, name, _ := strings.Cut(cfg.IdentitySecret, "/")
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	me, tunnel, err := readSecret(ctx, client.CoreV1().Secrets(namespace), name)
	if err != nil {
		return nil, tunnel, fmt.Errorf("the keys of this cluster, Secret %s: %w", cfg.IdentitySecret, err)
	}
	return me, tunnel, nil
}

// readSecret reads both keys, and makes those that the Secret does not have. One that is damaged is an error and never replaced: peers
// know it. The Secret itself is made by whoever installs Kith, so that kithd need not be let make others.
func readSecret(ctx context.Context, secrets typedcorev1.SecretInterface, name string) (*identity.Identity, gateway.PrivateKey, error) {
	for {
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, gateway.PrivateKey{}, err
		}
		made, err := complete(secret)
		if err != nil {
			return nil, gateway.PrivateKey{}, err
		}
		if made {
			_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				continue // another kithd was faster, and its keys stay
			} else if err != nil {
				return nil, gateway.PrivateKey{}, fmt.Errorf("keep new keys: %w", err)
			}
		}
		me, err := identity.Parse(secret.Data[identityKey])
		if err != nil {
			return nil, gateway.PrivateKey{}, fmt.Errorf("%s: %w", identityKey, err)
		}
		tunnel, err := gateway.ParsePrivateKey(string(secret.Data[wireguardKey]))
		if err != nil {
			return nil, gateway.PrivateKey{}, fmt.Errorf("%s: %w", wireguardKey, err)
		}
		return me, tunnel, nil
	}
}

// complete makes the keys that a Secret does not have, and reports whether there are any.
func complete(secret *corev1.Secret) (made bool, err error) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for name, make := range map[string]func() ([]byte, error){
		identityKey: identity.NewKey,
		wireguardKey: func() ([]byte, error) {
			k, err := gateway.GenerateKey()
			return k.Reveal(), err
		},
	} {
		if len(secret.Data[name]) > 0 {
			continue
		}
		if secret.Data[name], err = make(); err != nil {
			return false, err
		}
		made = true
	}
	return made, nil
}
