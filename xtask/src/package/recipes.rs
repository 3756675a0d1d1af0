//! The Homebrew formula and the Nix file: they install the tarball from an address, by its checksum.

use super::Package;
use super::archive::Checksum;
use super::product::{LICENCE, NAME, Product, SUMMARY};

pub(super) fn make(product: &Product, tarball: &Package, base_url: &str) -> [Package; 2] {
    let url = format!("{base_url}/{}", tarball.name);
    let checksum = Checksum::of(&tarball.bytes);
    [
        Package { name: format!("{NAME}.rb"), bytes: formula(product, &url, &checksum).into_bytes() },
        Package { name: format!("{NAME}.nix"), bytes: nix(product, &url, &checksum).into_bytes() },
    ]
}

fn formula(product: &Product, url: &str, checksum: &Checksum) -> String {
    let machine = match product.elf.machine.triple() {
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        r##"class Dogwatch < Formula
  desc "{SUMMARY}"
  url "{url}"
  version "{version}"
  sha256 "{sum}"
  license "{LICENCE}"

  depends_on arch: :{machine}
  depends_on :linux

  def install
    bin.install "bin/dogwatch"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/dogwatch"
    zsh_completion.install "share/zsh/site-functions/_dogwatch"
    fish_completion.install "share/fish/vendor_completions.d/dogwatch.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/dogwatch --version")
  end
end
"##,
        version = product.version,
        sum = checksum.hex(),
    )
}

fn nix(product: &Product, url: &str, checksum: &Checksum) -> String {
    format!(
        r#"{{ pkgs ? import <nixpkgs> {{ }} }}:

pkgs.stdenv.mkDerivation {{
  pname = "{NAME}";
  version = "{version}";

  src = pkgs.fetchurl {{
    url = "{url}";
    hash = "sha256-{sum}";
  }};

  # The program names the loader of other distributions.
  nativeBuildInputs = [ pkgs.autoPatchelfHook ];
  buildInputs = [ pkgs.stdenv.cc.cc.lib ];

  installPhase = ''
    mkdir -p $out
    cp -r bin share $out/
  '';

  meta = {{
    description = "{SUMMARY}";
    license = pkgs.lib.licenses.asl20;
    platforms = [ "{machine}-linux" ];
    mainProgram = "dogwatch";
  }};
}}
"#,
        version = product.version,
        sum = checksum.base64(),
        machine = product.elf.machine.triple(),
    )
}
