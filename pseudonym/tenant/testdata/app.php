<?php
// An application of PHP that knows nothing of pseudonyms: a session, a form, an upload, absolute URLs.
session_start();
$own = ($_SERVER['HTTP_X_FORWARDED_PROTO'] ?? 'http') . '://' . $_SERVER['HTTP_HOST'];
switch (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
    case '/login':
        $_SESSION['user'] = $_POST['user'];
        header("Location: $own/");
        exit;
    case '/upload':
        echo $_FILES['file']['size'], ' ', sha1_file($_FILES['file']['tmp_name']);
        exit;
}
setcookie('zone', '1', ['domain' => 'cloud.example']);
?><!DOCTYPE html>
<img srcset="<?= $own ?>/1.png 1x, <?= $own ?>/2.png 2x">
<form action="<?= $own ?>/login" method="post"><input name="user"></form>
<p>Hello <?= htmlspecialchars($_SESSION['user'] ?? 'nobody') ?> from <?= $_SERVER['HTTP_X_FORWARDED_FOR'] ?></p>
